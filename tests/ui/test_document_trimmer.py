"""Open pages need little memory on the server, and lose nothing by trimming."""

from __future__ import annotations

from typing import Any

import pytest
from bokeh.core.property.wrappers import PropertyValueDict, PropertyValueList, PropertyValueSet
from bokeh.document import Document
from bokeh.document.events import ModelChangedEvent
from bokeh.models import Column

from distlab.folds import Folds
from distlab.page.board import Board
from distlab.page.view import View
from distlab_dashboard import session as session_module
from distlab_dashboard.document_trimmer import DocumentTrimmer
from tests.synthetic import ListSource, beginning, steps
from tests.ui.conftest import Pages, Served
from tests.ui.waiting import wait_until


def shown(page: str) -> Document:
    """The document of a page that shows a run."""
    folds, board, document = Folds(), Board(), Document()
    folds.add([*beginning(), *steps(20)])
    board.update(folds, View(page=page))
    with document.models.freeze():
        for root in board.roots().values():
            document.add_root(root)
    return document


def empty_containers(document: Document) -> int:
    return sum(
        isinstance(value, PropertyValueDict | PropertyValueList | PropertyValueSet) and not value
        for model in document.models
        for value in model._unstable_default_values.values()
    )


@pytest.mark.parametrize("page", ["overview", "devices", "steps"])
def test_a_page_is_the_same_with_them_dropped(page: str) -> None:
    document = shown(page)
    before = document.to_json(deferred=False)
    assert empty_containers(document) > 500
    DocumentTrimmer(document).trim()
    assert empty_containers(document) == 0
    assert document.to_json(deferred=False) == before


def test_they_are_dropped_again_when_they_were_made_again() -> None:
    document = shown("overview")
    trimmer = DocumentTrimmer(document)
    trimmer.trim()
    document.to_json()
    assert empty_containers(document) > 500
    trimmer.update()
    assert empty_containers(document) == 0


def test_a_quiet_page_is_trimmed_once_a_minute_and_a_new_chart_at_once() -> None:
    document = shown("overview")
    trimmer = DocumentTrimmer(document)
    trimmer.trim()
    for _ in range(2_000):
        trimmer.update()
    document.to_json()
    looks = 0
    while empty_containers(document):
        trimmer.update()
        looks += 1
    assert 1 <= looks <= 512
    for _ in range(2_000):
        trimmer.update()
    document.add_root(Column(children=[Column()]))
    assert empty_containers(document) > 500
    trimmer.update()
    assert empty_containers(document) == 0
    document.to_json()  # the page is sent what is new
    trimmer.update()
    assert empty_containers(document) == 0


def test_a_property_that_was_dropped_can_still_be_changed_in_place() -> None:
    document = shown("overview")
    DocumentTrimmer(document).trim()
    changed: list[tuple[Any, str]] = []

    def note(event: Any) -> None:
        assert isinstance(event, ModelChangedEvent)
        changed.append((event.model, event.attr))

    document.on_change(note)
    root = document.roots[0]
    root.tags.append("new")
    assert changed == [(root, "tags")]
    DocumentTrimmer(document).trim()
    assert root.tags == ["new"]


def test_a_served_page_soon_holds_none(
    served: Served, new_page: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents: list[Document] = []
    fill = session_module.Session.fill

    def noted(session: Any, document: Document) -> None:
        fill(session, document)
        documents.append(document)

    monkeypatch.setattr(session_module.Session, "fill", noted)
    source = ListSource([*beginning(total_steps=100), *steps(20)])
    page = new_page().open(served(source).url)
    page.wait_for_text("steps", "20 of 100")
    (document,) = documents
    wait_until(lambda: empty_containers(document) == 0)
    source.events.extend(steps(20, first=20))
    page.wait_for_text("steps", "40 of 100")
    page.tab("devices")
    assert page.data("devices", "devices")["device"]
    wait_until(lambda: empty_containers(document) == 0)
