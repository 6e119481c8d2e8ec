"""A page that shows one message in place of a run."""

from __future__ import annotations

from html import escape

import panel as pn


def show_notice(message: object) -> None:
    """Fills the page with a message.

    Args:
      message: Its text, such as an error. Nothing in it is markup: an error may quote
        the page's address, which anybody can write.
    """
    # The pane escapes its text on the way to the browser, which takes that back.
    text = escape(str(message))
    pn.pane.Str(
        text,
        sizing_mode="stretch_width",
        styles={"font-size": "16px", "padding": "24px"},
        stylesheets=["pre { white-space: pre-wrap; overflow-wrap: anywhere }"],
    ).servable()
