"""The live view: Bokeh charts in a notebook page, fed from this process."""

from __future__ import annotations

from importlib import resources
from typing import Any

import anywidget
import bokeh
import traitlets

from distlab.charts import theme
from distlab.folds import Folds
from distlab.widgets import _bokehjs
from distlab.widgets._facts import Facts
from distlab.widgets._panes import Panes

_SCOPE = ".distlab-live"


def _file(name: str) -> str:
    return resources.files("distlab.widgets").joinpath(name).read_text("utf-8")


class LiveView(anywidget.AnyWidget):
    """Draws in every element of the page whose class is `host`, over what is in it.

    Data goes one way, from here to the page: a page can answer only between
    cells, so nothing waits for it. Each trait holds all there is to know, and a
    page that comes late or missed some of it draws the newest state.
    """

    _esm = _file("view.js")
    _css = theme.css_within(_SCOPE) + _file("view.css")

    host = traitlets.Unicode().tag(sync=True)
    bokeh_version = traitlets.Unicode().tag(sync=True)
    items = traitlets.Dict().tag(sync=True)
    said = traitlets.Dict().tag(sync=True)
    batches = traitlets.Dict().tag(sync=True)
    devices = traitlets.Dict().tag(sync=True)
    reductions = traitlets.Dict().tag(sync=True)

    def __init__(self, host: str, batch: int | None) -> None:
        """Opens the view.

        Args:
          host: class name of the elements to draw in.
          batch: number of the batch to show, None for the newest.
        """
        self._panes = Panes(batch)
        super().__init__(host=host, bokeh_version=bokeh.__version__)
        self.on_msg(_answer)
        # A page that opens while a cell runs could not be answered, so it need not ask.
        self.send({"kind": "bokehjs"}, [_bokehjs.script()])

    def show(self, said: Facts, folds: Folds) -> None:
        """Brings pages up to date.

        Args:
          said: the run in words.
          folds: all that is known of it.
        """
        changed = self._panes.update(folds)
        with self.hold_sync():
            self.said = {
                "name": said.name,
                "status": said.status,
                "steps": said.steps,
                "batch": said.batch,
                "sizes": [list(pair) for pair in said.sizes],
                "notes": said.notes,
            }
            self.items = self._panes.items
            for name, data in changed.items():
                setattr(self, name, data)


def _answer(view: LiveView, content: dict[str, Any], _buffers: list[Any]) -> None:
    """Sends BokehJS again to a page that was opened later."""
    if content.get("kind") == "bokehjs":
        view.send({"kind": "bokehjs"}, [_bokehjs.script()])
