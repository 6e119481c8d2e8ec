"""The widget of a live view: Bokeh charts in a notebook page, fed from this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import anywidget
import bokeh
import traitlets

from distlab.charts import theme
from distlab.folds import Folds
from distlab.page.loop_buttons import LoopRow, loop_rows, press
from distlab.widgets._front_end import bokehjs, file_text, let_messages_pass
from distlab.widgets._summary import Summary
from distlab.widgets._view_charts import ViewCharts

_SCOPE: Final = ".distlab-live"


class ViewWidget(anywidget.AnyWidget):
    """Draws in every element of the page whose class is `host`, over its content.

    Data goes from here to the page, and nothing waits for the page. Each trait holds its
    whole state, so a page that opens late or misses a change draws the newest state. The
    page sends clicks on the buttons. Each is acknowledged, so that the page can show that
    clicks have to wait.
    """

    _has_sent: ClassVar[bool] = False  # BokehJS, which all views of a page share

    _esm = file_text("host.js") + file_text("view.js")
    _css = theme.css_within(_SCOPE) + file_text("view.css")

    host = traitlets.Unicode().tag(sync=True)
    bokeh_version = traitlets.Unicode().tag(sync=True)
    charts: traitlets.List[str] = traitlets.List().tag(sync=True)
    items = traitlets.Dict().tag(sync=True)
    summary = traitlets.Dict().tag(sync=True)
    loops: traitlets.List[LoopRow] = traitlets.List().tag(sync=True)
    # The data of each chart, for those that the view has.
    loss = traitlets.Dict().tag(sync=True)
    batches = traitlets.Dict().tag(sync=True)
    devices = traitlets.Dict().tag(sync=True)
    reductions = traitlets.Dict().tag(sync=True)
    placement = traitlets.Dict().tag(sync=True)
    captured = traitlets.Dict().tag(sync=True)
    rates = traitlets.Dict().tag(sync=True)
    timeline = traitlets.Dict().tag(sync=True)

    def __init__(
        self, host: str, charts: Sequence[str], *, batch: int | None, buttons: bool
    ) -> None:
        self._charts = ViewCharts(charts, batch)
        self._buttons = buttons
        super().__init__(host=host, bokeh_version=bokeh.__version__, charts=list(charts))
        let_messages_pass(self)
        self.on_msg(_answer)
        # A page that opens while a cell runs may get no answer, so the first one need not ask.
        if not ViewWidget._has_sent:
            ViewWidget._has_sent = True
            self.send({"kind": "bokehjs"}, [bokehjs()])

    def show(self, summary: Summary, folds: Folds) -> None:
        """Updates the pages."""
        changed = self._charts.update(folds)
        sentence, amounts = summary.headline()
        with self.hold_sync():
            self.summary = {
                "name": summary.name,
                "status": summary.status,
                "steps": summary.steps,
                "sentence": sentence,
                "amounts": [list(pair) for pair in amounts],
                "notes": summary.notes,
                "grids": summary.grids,
            }
            self.items = self._charts.items
            for name, data in changed.items():
                setattr(self, name, data)

    def show_loops(self) -> None:
        """Updates the buttons; sends nothing when nothing changed."""
        if self._buttons:
            self.loops = loop_rows()


def _answer(view: ViewWidget, content: dict[str, object], _buffers: list[object]) -> None:
    """Answers a page that asks for BokehJS, or reports a click on a button."""
    match content.get("kind"):
        case "bokehjs":
            view.send({"kind": "bokehjs"}, [bokehjs()])
        case "press":
            press(content.get("loop"), content.get("verb"))
            view.send({"kind": "pressed", "click": content.get("click")})
        case _:
            pass
