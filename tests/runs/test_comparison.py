"""Two recorded runs side by side, in a script and in a notebook."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentTypeError, RecordError
from distlab.runs.run_file import RunFile
from tests.synthetic import whole_run


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of 8 and 4 replicas."""
    for name, replicas in (("wide", 8), ("narrow", 4)):
        file = RunFile(tmp_path / name, name)
        file.write(whole_run(40, replicas=replicas))
        file.close()
    return tmp_path / "wide", tmp_path / "narrow"


def test_it_says_what_differs_and_the_numbers_of_both(runs: tuple[Path, Path]) -> None:
    with dl.Run.open(runs[0]) as first, dl.Run.open(runs[1]) as second:
        compared = first.compare(second)
    text = str(compared)
    assert text.splitlines()[1].split("  ", 1)[0] == "devices"
    assert "8 simulated devices  4 simulated devices" in text.splitlines()[1]
    assert "strategy" not in text
    assert "replicas" in text
    html = compared._repr_html_()
    assert html.index("8 simulated devices") < html.index("steps per second")
    assert "second / first" in html


def test_runs_that_are_alike_say_so(runs: tuple[Path, Path]) -> None:
    with dl.Run.open(runs[0]) as first, dl.Run.open(runs[0]) as again:
        compared = first.compare(again)
    assert str(compared).splitlines()[1].strip() == "no setting differs"
    assert "no setting differs" in compared._repr_html_()


def test_only_open_runs_are_compared(runs: tuple[Path, Path]) -> None:
    with dl.Run.open(runs[0]) as first:
        with pytest.raises(ArgumentTypeError, match="Open it first"):
            first.compare("runs/narrow")  # type: ignore[arg-type]
        second = dl.Run.open(runs[1])
        second.close()
        with pytest.raises(RecordError):
            first.compare(second)


def test_settings_of_the_program_are_shown_beside_those_of_others(tmp_path: Path) -> None:
    for name, rate, machine in (("a", 0.1, 3), ("b", 0.2, 3), ("c", 0.1, 4)):
        model = {"layers": 2, "kind": np.float32}
        config = {"rate": rate, "model": model, "machine": np.int64(machine)}
        dl.record(tmp_path / name, config=config).close()
    with ExitStack() as opened:
        first, *others = (opened.enter_context(dl.Run.open(tmp_path / name)) for name in "abc")
        kept = first.summary()["config"]
        lines = str(first.compare(*others)).splitlines()
    assert kept == {
        "rate": 0.1, "model.layers": 2, "model.kind": "<class 'numpy.float32'>", "machine": 3,
    }  # fmt: skip
    assert [line.split() for line in lines[:3]] == [
        ["a", "b", "c"], ["rate", "0.1", "0.2", "0.1"], ["config.machine", "3", "3", "4"],
    ]  # fmt: skip
    with pytest.raises(ArgumentTypeError, match="config must be a mapping"):
        dl.record(tmp_path / "d", config=0.1)  # type: ignore[arg-type]
    assert not (tmp_path / "d").exists()
