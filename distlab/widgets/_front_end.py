"""The front end of widgets: their files, BokehJS, and their connection to the kernel."""

from __future__ import annotations

import gzip
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anywidget import AnyWidget


_BOKEHJS = "server/static/js/bokeh.min.js"


def file_text(name: str) -> str:
    """Returns the text of a script or style sheet of this package."""
    return resources.files("distlab.widgets").joinpath(name).read_text("utf-8")


def let_messages_pass(widget: AnyWidget) -> None:
    """Lets messages of a page reach a widget while a cell runs, where the front end can.

    JupyterLab sends them to a subshell, which is another thread of the kernel. But
    ipykernel (7.4) delivers a page's message to the thread that last sent to the page,
    so that a program may wait for an answer: here that is the busy thread, and nothing
    waits. Without subshells this has no effect.
    """
    widget.comm._reply_subshell_for = None


@cache
def bokehjs() -> bytes:
    """Returns the installed BokehJS without its add-ons, compressed with gzip (about 350 kB)."""
    return gzip.compress(resources.files("bokeh").joinpath(_BOKEHJS).read_bytes(), mtime=0)
