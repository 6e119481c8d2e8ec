"""A run that takes the place of another while a dashboard serves its folder."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

import distlab as dl
from distlab_dashboard.library import Library, library_of
from tests.patience import wait_until


def record(folder: Path, loss: float, *, overwrite: bool = False) -> None:
    with dl.record(folder, overwrite=overwrite) as recording:
        recording.log(0, loss=loss)


def shown(library: Library, name: str) -> list[float]:
    """Returns the last loss that a page shows which is opened now."""
    run = library.hold(name)
    try:
        wait_until(lambda: run.feed.caught_up, "the run")
        return list(run.feed.folds.columns("metrics")["last"])
    finally:
        library.release(run)


@pytest.mark.parametrize("single", [True, False], ids=["overwritten", "deleted, in a folder"])
def test_pages_that_are_opened_later_show_the_new_run(tmp_path: Path, single: bool) -> None:
    folder = tmp_path / "first"
    record(folder, 1.0)
    library = library_of(folder if single else tmp_path)
    library.start()
    try:
        assert shown(library, "first") == [1.0]
        open_page = library.hold("first")
        if not single:
            for name in ("./first", "first/", "first//.", "second/../first"):
                assert library.hold(name) is open_page
            shutil.rmtree(folder)
        record(folder, 2.0, overwrite=single)
        assert shown(library, "first") == [2.0]
        assert library.hold("first") is not open_page
        assert list(open_page.feed.folds.columns("metrics")["last"]) == [1.0]
        library.release(open_page)
        assert shown(library, "first") == [2.0]
        if single:  # a damaged run takes no place
            file = folder / "process-0.sqlite"
            file.rename(folder / "kept")
            file.write_text("no run")
            assert shown(library, "first") == [2.0]
    finally:
        library.stop()


@pytest.mark.slow
def test_a_release_does_not_wait_for_the_reader_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        record(tmp_path / str(number), 1.0)
    library = library_of(tmp_path)
    runs = [library.hold(str(number)) for number in range(4)]
    read, stop = threading.Event(), runs[0].stop
    stopped = []

    def slow_stop() -> None:
        stopped.append(read.wait(60))
        stop()

    monkeypatch.setattr(runs[0], "stop", slow_stop)
    for run in runs:
        library.release(run)
    assert stopped == []  # and yet it was released
    read.set()
    library.stop()
    assert stopped == [True]
