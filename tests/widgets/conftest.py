"""A notebook without a front end, which keeps its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from distlab.widgets import _view
from distlab.widgets._notebook import Execution

FIRST = Execution("cell 1", "request 1")


@dataclass
class FakeNotebook:
    """Stands for the kernel of a notebook."""

    execution: Execution = FIRST
    outputs: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    updates: int = 0
    after_cells: Callable[[], None] | None = None

    def publish(self, html: str, text: str, display_id: str, *, update: bool) -> None:
        bundle = {"text/html": html, "text/plain": text}
        if update:
            self.updates += 1
            places = self.outputs.get(display_id, [])
            places[:] = [bundle] * len(places)
        else:
            self.outputs.setdefault(display_id, []).append(bundle)

    def call_after_cells(self, callback: Callable[[], None] | None) -> None:
        self.after_cells = callback

    def newest(self) -> dict[str, str]:
        return next(reversed(self.outputs.values()))[-1]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNotebook]:
    fake = FakeNotebook()
    monkeypatch.setattr(_view, "find_notebook", lambda: fake)
    monkeypatch.setattr(_view, "_open_views", None)
    yield fake
    if _view._open_views is not None:
        for view in list(_view._open_views.views):
            view.close()
