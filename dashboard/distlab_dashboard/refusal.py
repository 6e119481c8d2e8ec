"""Small pages without scripts: why a request is refused, and the form that asks for the token."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from distlab_dashboard.arguments import argument
from distlab_dashboard.headers import POLICY, refusal_policy
from distlab_dashboard.hosts import Host

_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>distlab</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root {{ color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }}
body {{ max-width: 34em; margin: 18vh auto; padding: 0 24px }}
p {{ overflow-wrap: anywhere }}
input, button {{ font: inherit; padding: 6px 10px }}</style>
<h1>{title}</h1>
<p>{text}</p>
{form}
"""
_FORM: Final = """<form method="get">{kept}
<label>token <input name="token" type="password" autocomplete="off" autofocus></label>
<button>Open</button></form>"""
_LINK: Final = '<p><a href="?{query}">Open the dashboard</a></p>'
_KEPT: Final = '<input type="hidden" name="{name}" value="{value}">'


@dataclass(frozen=True)
class Reason:
    """Why a request is refused. Nothing here is markup: it may quote what anybody can write.

    Attributes:
      status: The answer's status.
      title: The heading.
      text: The explanation.
      retry_after: Seconds after which to try again, 0 for none.
      asks: Whether to ask for the token.
      opens: Whether to lead to the page itself.
      cookie: Name and value of the cookie of those who had the token.
    """

    status: int
    title: str
    text: str
    retry_after: int = 0
    asks: bool = False
    opens: bool = False
    cookie: tuple[str, str] | None = None


class Refusal(RequestHandler):
    """Answers any request with a page that says why it is refused."""

    def initialize(self, reason: Reason, origins: tuple[Host, ...]) -> None:
        """Keeps what to say; tornado calls it for each request."""
        self._why = reason
        self._origins = origins

    def prepare(self) -> None:
        """Answers, whatever was asked for."""
        refuse(self, self._why, self._origins)


def refuse(handler: RequestHandler, why: Reason, origins: tuple[Host, ...]) -> None:
    """Answers a request with a page that says why it is refused."""
    handler.set_status(why.status)
    handler.set_header("Cache-Control", "no-store")
    handler.set_header(POLICY, refusal_policy(origins))
    if why.retry_after:
        handler.set_header("Retry-After", str(why.retry_after))
    if why.cookie is not None:
        handler.set_cookie(*why.cookie, httponly=True, samesite="Lax")
    form = _form(handler.request) if why.asks else _link(handler.request) if why.opens else ""
    handler.finish(_PAGE.format(title=escape(why.title), text=escape(why.text), form=form))


def _form(request: HTTPServerRequest) -> str:
    """Returns the form, which keeps the run that the address names."""
    kept = (
        _KEPT.format(name=name, value=escape(value))
        for name in ("run", "compare")
        if (value := argument(request.query_arguments, name)) is not None
    )
    return _FORM.format(kept="".join(kept))


def _link(request: HTTPServerRequest) -> str:
    """Returns a link to the same address, whose request is one of this server's own pages."""
    return _LINK.format(query=escape(request.query))
