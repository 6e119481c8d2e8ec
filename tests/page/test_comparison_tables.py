"""The tables of runs: configurations with what differs first, and numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from distlab.events import Event, Unknown
from distlab.folds import Folds, compare
from distlab.page.comparison_tables import number_table, ratio_text, setting_table
from tests.synthetic import whole_run


def folds_of(events: Sequence[Event | Unknown]) -> Folds:
    folds = Folds()
    folds.add(events)
    return folds


def cells(table: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns the texts of a page's table by the first of each row."""
    rows = re.findall(r"<tr.*?</tr>", table["html"][0])
    texts = [re.findall(r"<t[hd][^>]*>(?:<i [^>]*></i>)?(.*?)</t[hd]>", row) for row in rows]
    return {first: others for first, *others in texts}


def test_settings_that_differ_come_first() -> None:
    runs = [folds_of(whole_run(count, replicas=n)) for count, n in ((100, 8), (200, 4), (100, 4))]
    rows = cells(setting_table(compare(*runs)))
    assert rows.pop("configuration") == ["made-up (1)", "made-up (2)", "made-up (3)", ""]
    last = [texts[-1] for texts in rows.values()]
    assert last == sorted(last)
    assert rows["devices"] == [
        "8 simulated devices", "4 simulated devices", "4 simulated devices", "differs",
    ]  # fmt: skip
    assert rows["planned steps"] == ["100", "200", "100", "differs"]
    assert rows["examples in a full batch"] == ["64", "64", "64", "same"]
    assert rows["variables"][-1] == "same"
    assert "jax" in rows


def test_settings_that_are_not_known_say_so() -> None:
    rows = cells(setting_table(compare(folds_of(whole_run(10)), Folds())))
    assert rows["strategy"] == ["MirroredStrategy", "not known", "differs"]
    assert rows["jax"][1] == "not known"


def test_numbers_of_two_runs_have_their_ratio() -> None:
    runs = [folds_of(whole_run(count)) for count in (100, 200, 100)]
    rows = cells(number_table(compare(*runs[:2])))
    assert rows["of the whole run"] == ["made-up (1)", "made-up (2)", "second / first"]
    assert rows["replicas"] == ["8", "8", "same"]
    assert rows["steps"] == ["100", "200", "\u00d7 2"]
    assert rows["steps per second"] == ["100", "100", "same"]
    assert rows["combined on one replica"] == ["964 kB", "1.93 MB", "\u00d7 2"]
    waited = sum(40 + number % 7 for number in range(100)) / 1_000
    number, unit = rows["waited for input"][0].split()
    assert unit == "ms"
    assert float(number) == pytest.approx(waited, abs=0.01)
    assert rows["tracing and compiling"] == ["110 ms", "110 ms", "same"]
    assert cells(number_table(compare(*runs)))["steps"] == ["100", "200", "100"]


def test_texts_of_runs_are_escaped() -> None:
    columns = compare(folds_of(whole_run(10)), Folds(), names=("<b>", "&"))
    for table in (setting_table(columns), number_table(columns)):
        assert "<b>" not in table["html"][0]
        assert "&lt;b&gt;" in table["html"][0]


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
