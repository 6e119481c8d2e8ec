"""A page that shows one message in place of a run."""

from __future__ import annotations

from typing import Final

import panel as pn
from bokeh.core.templates import get_env

_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>distlab</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 34em; margin: 18vh auto; padding: 0 24px }
p { overflow-wrap: anywhere }</style>
<h1>This can't be shown</h1>
<p>{{ notice | e }}</p>
"""


def show_notice(message: object) -> None:
    """Fills the page with a message.

    It is no pane of Panel's: that is drawn by scripts which the gate's answers do not let run.
    """
    document = pn.state.curdoc
    assert document is not None  # Panel calls this to make a document
    document.template = get_env().from_string(_PAGE)
    document.template_variables["notice"] = str(message)
