"""The widget of the explorer: its controls, and the picture that this process draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from distlab.charts import theme
from distlab.widgets._front_end import file_text, let_messages_pass


class ExplorerWidget(anywidget.AnyWidget):
    """Draws in every element of the page whose class is `host`, over its content."""

    _esm = file_text("host.js") + file_text("explorer.js")
    _css = theme.css_within(".distlab-explorer") + file_text("explorer.css")

    host = traitlets.Unicode().tag(sync=True)
    controls: traitlets.List[Any] = traitlets.List().tag(sync=True)
    chosen = traitlets.Dict().tag(sync=True)
    picture = traitlets.Unicode().tag(sync=True)
    answered = traitlets.Int().tag(sync=True)

    def __init__(self, host: str, choose: Callable[[str, object], None]) -> None:
        super().__init__(host=host)
        let_messages_pass(self)
        self._choose = choose
        self.on_msg(_answer)

    def show(self, controls: list[dict[str, Any]], chosen: dict[str, object], picture: str) -> None:
        """Updates the pages, even without a change: they wait for an answer."""
        with self.hold_sync():
            self.controls = controls
            self.chosen = chosen
            self.picture = picture
            self.answered += 1

    def apply(self, name: object, value: object) -> None:
        """Applies a choice from a page."""
        if isinstance(name, str):
            self._choose(name, value)


def _answer(widget: ExplorerWidget, content: dict[str, object], _buffers: list[object]) -> None:
    if content.get("kind") == "choose":
        widget.apply(content.get("name"), content.get("value"))
