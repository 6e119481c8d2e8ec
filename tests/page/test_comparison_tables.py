"""The tables of two runs: configurations with what differs first, and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from distlab.events import Event, Unknown
from distlab.folds import Folds, compare
from distlab.page.comparison_tables import number_rows, ratio_text, setting_rows
from tests.synthetic import whole_run


def folds_of(events: Sequence[Event | Unknown]) -> Folds:
    folds = Folds()
    folds.add(events)
    return folds


def line(rows: dict[str, list[str]], what: str) -> tuple[str, ...]:
    place = rows["what"].index(what)
    return tuple(texts[place] for name, texts in rows.items() if name != "what")


def test_settings_that_differ_come_first() -> None:
    rows = setting_rows(compare(folds_of(whole_run(100)), folds_of(whole_run(200, replicas=4))))
    differ = rows["differs"].count("differs")
    assert rows["differs"] == ["differs"] * differ + ["same"] * (len(rows["what"]) - differ)
    assert line(rows, "devices") == ("8 simulated devices", "4 simulated devices", "differs")
    assert line(rows, "planned steps") == ("100", "200", "differs")
    assert line(rows, "examples in a full batch") == ("64", "64", "same")
    assert line(rows, "replica functions") == ("train_step", "train_step", "same")
    assert line(rows, "variables")[2] == "same"
    assert "jax" in rows["what"]


def test_settings_that_are_not_known_say_so() -> None:
    rows = setting_rows(compare(folds_of(whole_run(10)), Folds()))
    assert line(rows, "strategy") == ("MirroredStrategy", "not known", "differs")
    assert line(rows, "jax")[1] == "not known"
    assert set(setting_rows(compare(Folds(), Folds()))["differs"]) == {"same"}


def test_numbers_of_both_runs_have_their_ratio() -> None:
    rows = number_rows(compare(folds_of(whole_run(100)), folds_of(whole_run(200))))
    assert line(rows, "replicas") == ("8", "8", "same")
    assert line(rows, "steps") == ("100", "200", "\u00d7 2")
    assert line(rows, "steps per second") == ("100", "100", "same")
    assert line(rows, "combined on one replica") == ("964 kB", "1.93 MB", "\u00d7 2")
    waited = sum(40 + number % 7 for number in range(100)) / 1_000
    number, unit = line(rows, "waited for input")[0].split()
    assert unit == "ms"
    assert float(number) == pytest.approx(waited, abs=0.01)
    assert line(rows, "tracing and compiling") == ("110 ms", "110 ms", "same")


def test_ratio_texts() -> None:
    for first, second, text in (
        (2.0, 3.0, "\u00d7 1.5"),
        (0, 0, "same"),
        (0, 3, ""),
        (None, 3, ""),
        (3, None, ""),
        (1.0, float("nan"), ""),
    ):
        assert ratio_text(first, second) == text
