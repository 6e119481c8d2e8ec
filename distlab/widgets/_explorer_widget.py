"""The explorer in a notebook page: its controls, and the picture that this process draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from distlab.charts import theme
from distlab.widgets._page import file_text, let_messages_pass


class ExplorerWidget(anywidget.AnyWidget):
    """Draws in every element of the page whose class is `host`, over what is in it."""

    _esm = file_text("host.js") + file_text("explorer.js")
    _css = theme.css_within(".distlab-explorer") + file_text("explorer.css")

    host = traitlets.Unicode().tag(sync=True)
    controls: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    chosen = traitlets.Dict().tag(sync=True)
    picture = traitlets.Unicode().tag(sync=True)
    answered = traitlets.Int().tag(sync=True)

    def __init__(
        self, host: str, controls: list[dict[str, Any]], choose: Callable[[str, Any], None]
    ) -> None:
        """Opens it.

        Args:
          host: class name of the elements to draw in.
          controls: what a reader may choose.
          choose: called with a name and a value when somebody chose.
        """
        super().__init__(host=host, controls=controls)
        let_messages_pass(self)
        self._choose = choose
        self.on_msg(_answer)

    def show(self, chosen: dict[str, Any], picture: str) -> None:
        """Brings pages up to date, also when nothing changed: they wait for an answer."""
        with self.hold_sync():
            self.chosen = chosen
            self.picture = picture
            self.answered += 1

    def take(self, name: Any, value: Any) -> None:
        """Takes what a page chose."""
        if isinstance(name, str):
            self._choose(name, value)


def _answer(widget: ExplorerWidget, content: dict[str, Any], _buffers: list[Any]) -> None:
    if content.get("kind") == "choose":
        widget.take(content.get("name"), content.get("value"))
