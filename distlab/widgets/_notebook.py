"""The kernel of a notebook: its cells, their outputs and their ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Execution(NamedTuple):
    """One execution of one cell."""

    cell: str
    request: str


class Notebook:
    """The shell of a kernel that a front end reads."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._after: Callable[[], None] | None = None

    @property
    def execution(self) -> Execution:
        """The current execution, or the last one."""
        parent = self._shell.get_parent()
        metadata, header = parent.get("metadata", {}), parent.get("header", {})
        return Execution(str(metadata.get("cellId", "")), str(header.get("msg_id", "")))

    def publish(self, html: str, text: str, display_id: str, *, update: bool) -> None:
        """Adds an output below the cell, or replaces the outputs with this id."""
        self._shell.display_pub.publish(
            {"text/html": html, "text/plain": text},
            transient={"display_id": display_id},
            update=update,
        )

    def call_after_cells(self, callback: Callable[[], None] | None) -> None:
        """Calls a function at the end of each cell, in the cell's own thread.

        Only outputs from before a cell's end are sure to be saved with the notebook:
        programs that execute notebooks in a batch stop listening then.
        """
        if self._after is None and callback is not None:
            self._shell.events.register("post_run_cell", self._call)
        elif self._after is not None and callback is None:
            self._shell.events.unregister("post_run_cell", self._call)
        self._after = callback

    def _call(self, _result: object) -> None:
        if self._after is not None:
            self._after()


def find_notebook() -> Notebook | None:
    """Returns the kernel that runs this program; None in a script or a terminal."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return None if getattr(shell, "kernel", None) is None else Notebook(shell)
