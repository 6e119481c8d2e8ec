"""Pages that follow one run receive the same messages, and each can leave the others."""

from __future__ import annotations

from typing import Any

import pytest
from bokeh.core.serialization import Serializer

from distlab.errors import RecordError
from distlab.folds import Folds
from distlab.page.board import Board
from distlab.page.view import View
from distlab_dashboard.shared_pages import PAGES, SharedPage
from tests.patience import wait_until
from tests.synthetic import ListSource, beginning, steps, there
from tests.ui.conftest import Pages, Served, Watched


class Damaged(ListSource):
    """A live run that can't be read any further once it is broken."""

    broken = False

    def since(self, cursor: int, limit: int = 10_000) -> Any:
        if self.broken:
            raise RecordError("The run's folder is gone.")
        return super().since(cursor, limit)


def raised(error: Exception) -> None:
    raise error


@pytest.mark.slow
def test_models_have_the_same_ids_on_all_boards() -> None:
    first, second = Board(), Board()
    for page in ("overview", "reductions", "batches"):
        first.update(Folds(), View(page=page))
    for page in ("batches", "overview", "steps", "reductions"):
        second.update(Folds(), View(page=page))
    ids = {one.id: one.name for one in second.sources}
    assert {one.id: one.name for one in first.sources}.items() < ids.items()
    assert len(ids) == len(second.sources)


def test_a_board_has_the_charts_of_the_pages_that_were_opened() -> None:
    board = Board()
    assert {name for name, root in board.roots().items() if getattr(root, "children", [])} == set()
    board.update(Folds(), View(page="devices"))
    made = {name for name, root in board.roots().items() if getattr(root, "children", [])}
    assert made == {"devices", "captured", "memory"}
    board.update(Folds(), View(), everything=True)
    made = {name for name, root in board.roots().items() if getattr(root, "children", [])}
    assert made == set(board.roots()) - {"bridge", "compared_runs"}


@pytest.mark.slow
def test_a_shared_page_sends_what_a_board_of_its_page_shows() -> None:
    folds = Folds()
    folds.add([*beginning(), *steps(20)])
    shared = Board()
    for page in PAGES:
        shared_page = SharedPage(page, shared)
        shared_page.update(folds, lambda: {"status": "live"}, raised)
        (message,) = there(shared_page.since(0))
        sent = {
            event["model"]["id"]: event["data"]
            for event in message.content["events"]
            if event["kind"] == "ColumnDataChanged"
        }
        own = Board()
        before = {one.id: one.data for one in own.sources}
        own.update(folds, View(page=page))
        own.set_facts({"status": "live"})
        changed = [one for one in own.sources if one.data is not before.get(one.id)]
        assert len(changed) >= 2, page
        for one in changed:
            shown = Serializer(deferred=False).serialize(dict(one.data)).content
            assert sent[one.id] == shown, (page, one.name)


def wait_for_losses(page: Watched, count: int) -> None:
    """Charts may come after the texts."""
    wait_until(lambda: len(page.data("loss", "metrics")["value"][0]) == count, f"{count} losses")


def test_pages_that_follow_a_run_can_each_go_their_own_way(served: Served, new_page: Pages) -> None:
    source = Damaged([*beginning(total_steps=1_000), *steps(30)])
    url = served(source).url
    first, second, third = (new_page().open(url) for _ in range(3))
    for page in (first, second, third):
        page.wait_for_text("steps", "30 of 1\u202f000")
    source.events.extend(steps(10, first=30))
    for page in (first, second, third):
        page.wait_for_text("steps", "40 of 1\u202f000")
        wait_for_losses(page, 40)
    losses = [page.data("loss", "metrics")["value"] for page in (first, second, third)]
    assert losses[0] == losses[1] == losses[2]

    second.page.click(".play")  # pauses what is live
    third.page.goto(f"{url}#batches?batch=22")
    third.wait_for_text("batch_number", "22")
    source.events.extend(steps(10, first=40))
    first.wait_for_text("steps", "50 of 1\u202f000")
    assert second.text("steps") == "40 of 1\u202f000"
    assert third.text("batch_number") == "22"

    second.page.click(".now")
    third.page.check(".follow input")
    second.wait_for_text("steps", "50 of 1\u202f000")
    third.wait_for_text("batch_number", "49")
    source.events.extend(steps(5, first=50))
    for page in (first, second):
        page.wait_for_text("steps", "55 of 1\u202f000")
    third.wait_for_text("batch_number", "54")
    wait_for_losses(second, 55)
    second.page.close()
    third.page.close()
    source.events.extend(steps(5, first=55))
    first.wait_for_text("steps", "60 of 1\u202f000")  # alone again, it still follows
    wait_for_losses(first, 60)
    source.broken = True
    first.wait_for_text("trouble", "RecordError: The run's folder is gone.")
    assert first.text("trouble_title") == "The run can't be read any further"
    assert first.text("steps") == "60 of 1\u202f000"
