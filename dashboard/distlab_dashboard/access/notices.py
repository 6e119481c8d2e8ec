"""Small pages without scripts: refused requests, the form for the token, and lacking runs."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

import panel as pn
from bokeh.core.templates import get_env
from tornado.web import RequestHandler

from distlab_dashboard.access.arguments import values
from distlab_dashboard.access.headers import POLICY

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
    """The reason for a refusal. Nothing here is markup: it may quote what anybody can write."""

    status: int
    title: str
    text: str
    asks: bool = False


class Refusal(RequestHandler):
    """Answers any request with a page that explains why it is refused."""

    def initialize(self, reason: Reason, policy: str) -> None:
        """Keeps the reason; tornado calls it for each request."""
        self._why = reason
        self._policy = policy

    def prepare(self) -> None:
        """Answers any method."""
        reason = self._why
        self.set_status(reason.status)
        self.set_header("Cache-Control", "no-store")
        self.set_header(POLICY, self._policy)
        self.finish(_page(reason.title, reason.text, self._token_form() if reason.asks else ""))

    def _token_form(self) -> str:
        """Returns the form, which keeps the runs that the address names."""
        kept = (
            _KEPT.format(name=name, value=escape(value))
            for name in ("run", "compare")
            for value in values(self.request.query_arguments, name)
        )
        return _FORM.format(kept="".join(kept))


def show_notice(message: object) -> None:
    """Fills the current document with a message instead of a run.

    It is no pane of Panel's: that is drawn by scripts which the page's policy does not let run.
    """
    document = pn.state.curdoc
    assert document is not None  # Panel calls this to make a document
    document.template = get_env().from_string("{{ notice | safe }}")
    document.template_variables["notice"] = _page("This can't be shown", str(message))


def _page(title: str, text: str, form: str = "") -> str:
    return _PAGE.format(title=escape(title), text=escape(text), form=form)
