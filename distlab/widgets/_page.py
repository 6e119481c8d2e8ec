"""What widgets need of the page and of the way to it."""

from __future__ import annotations

from importlib import resources
from typing import Any


def file_text(name: str) -> str:
    """Returns a script or style sheet of this package."""
    return resources.files("distlab.widgets").joinpath(name).read_text("utf-8")


def let_messages_pass(widget: Any) -> None:
    """Lets messages of a page reach a widget while a cell runs, where the front end can.

    JupyterLab sends them to a subshell, which is another thread of the kernel. But
    ipykernel (7.4) hands what a page sends to the thread that last sent to the page,
    so that a program may wait for an answer: here that would be the busy one, and
    nobody waits. Without subshells this changes nothing.
    """
    widget.comm._reply_subshell_for = None
