"""The live view: Bokeh charts in a notebook page, fed from this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anywidget
import bokeh
import traitlets

from distlab.charts import theme
from distlab.folds import Folds
from distlab.widgets import _bokehjs
from distlab.widgets._controls import press, shown_loops
from distlab.widgets._facts import Facts
from distlab.widgets._page import file_text, let_messages_pass
from distlab.widgets._panes import Panes

_SCOPE = ".distlab-live"


class LiveView(anywidget.AnyWidget):
    """Draws in every element of the page whose class is `host`, over what is in it.

    Data goes from here to the page, and nothing waits for the page. Each trait
    holds all there is to know, so a page that comes late or missed some of it
    draws the newest state. From a page come the clicks on the buttons; each is
    acknowledged, so that the page can say when its clicks have to wait.
    """

    _esm = file_text("host.js") + file_text("view.js")
    _css = theme.css_within(_SCOPE) + file_text("view.css")

    host = traitlets.Unicode().tag(sync=True)
    bokeh_version = traitlets.Unicode().tag(sync=True)
    panes: traitlets.List[str] = traitlets.List().tag(sync=True)
    items = traitlets.Dict().tag(sync=True)
    said = traitlets.Dict().tag(sync=True)
    loops: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    # The data of each chart, for those that it has.
    batches = traitlets.Dict().tag(sync=True)
    devices = traitlets.Dict().tag(sync=True)
    reductions = traitlets.Dict().tag(sync=True)
    placement = traitlets.Dict().tag(sync=True)
    rates = traitlets.Dict().tag(sync=True)
    timeline = traitlets.Dict().tag(sync=True)

    def __init__(
        self, host: str, panes: Sequence[str], *, batch: int | None, buttons: bool
    ) -> None:
        """Opens the view.

        Args:
          host: class name of the elements to draw in.
          panes: names of its charts, from top to bottom.
          batch: number of the batch to show, None for the newest.
          buttons: whether it has buttons for the controlled loops of this process.
        """
        self._panes = Panes(panes, batch)
        self._buttons = buttons
        super().__init__(host=host, bokeh_version=bokeh.__version__, panes=list(panes))
        let_messages_pass(self)
        self.on_msg(_answer)
        # A page that opens while a cell runs may not be answered, so it need not ask.
        self.send({"kind": "bokehjs"}, [_bokehjs.script()])

    def show(self, said: Facts, folds: Folds) -> None:
        """Brings pages up to date.

        Args:
          said: the run in words.
          folds: all that is known of it.
        """
        changed = self._panes.update(folds)
        sentence, amounts = said.headline()
        with self.hold_sync():
            self.said = {
                "name": said.name,
                "status": said.status,
                "steps": said.steps,
                "sentence": sentence,
                "amounts": [list(pair) for pair in amounts],
                "notes": said.notes,
            }
            self.items = self._panes.items
            for name, data in changed.items():
                setattr(self, name, data)

    def show_loops(self) -> None:
        """Brings the buttons up to date; sends nothing when nothing changed."""
        if self._buttons:
            self.loops = shown_loops()


def _answer(view: LiveView, content: dict[str, Any], _buffers: list[Any]) -> None:
    """Does what a page asks for: BokehJS once more, or a click on a button."""
    match content.get("kind"):
        case "bokehjs":
            view.send({"kind": "bokehjs"}, [_bokehjs.script()])
        case "press":
            press(content.get("loop"), content.get("verb"))
            view.send({"kind": "pressed", "click": content.get("click")})
        case _:
            pass
