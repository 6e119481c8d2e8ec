"""Small pages without scripts: why a request is refused, and the form that asks for the token."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

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
    """

    status: int
    title: str
    text: str
    retry_after: int = 0
    asks: bool = False


class Refusal(RequestHandler):
    """Answers any request with a page that says why it is refused."""

    def initialize(self, reason: Reason, origins: tuple[Host, ...]) -> None:
        """Keeps what to say; tornado calls it for each request.

        Args:
          reason: Why the request is refused.
          origins: Hosts at which a proxy serves the page.
        """
        self._why = reason
        self._origins = origins

    def prepare(self) -> None:
        """Answers, whatever was asked for."""
        why = self._why
        self.set_status(why.status)
        self.set_header("Cache-Control", "no-store")
        self.set_header(POLICY, refusal_policy(self._origins))
        if why.retry_after:
            self.set_header("Retry-After", str(why.retry_after))
        form = self._form() if why.asks else ""
        self.finish(_PAGE.format(title=escape(why.title), text=escape(why.text), form=form))

    def _form(self) -> str:
        """Returns the form, which keeps the run that the address names."""
        kept = (
            _KEPT.format(name=name, value=escape(value))
            for name in ("run", "compare")
            if (value := argument(self.request.query_arguments, name)) is not None
        )
        return _FORM.format(kept="".join(kept))
