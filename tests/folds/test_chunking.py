"""Columns depend on the events, never on how many arrive at a time."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.events import Event, Unknown
from distlab.folds import Batches, Folds
from distlab.folds._series import Series
from tests.synthetic import ListSource, placed, whole_run

EVENTS = whole_run(120)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray | float):
        return bool(np.array_equal(np.asarray(left), np.asarray(right), equal_nan=True))
    return bool(left == right)


def everything(folds: Folds) -> dict[str, Any]:
    return {name: folds.columns(name) for name in folds.names} | {"batch": folds.batch(3)}


@given(cuts=st.lists(st.integers(0, len(EVENTS)), max_size=8))
@settings(max_examples=12, deadline=None)
def test_columns_do_not_depend_on_chunks(cuts: list[int]) -> None:
    whole, parts = Folds(), Folds()
    whole.add(EVENTS)
    edges = [0, *sorted(cuts), len(EVENTS)]
    for begin, end in itertools.pairwise(edges):
        parts.add(EVENTS[begin:end])
        everything(parts)
    assert same(everything(whole), everything(parts))


@given(limit=st.integers(1, 500))
@settings(max_examples=10, deadline=None)
def test_reading_by_cursor_gives_all_events(limit: int) -> None:
    whole, read = Folds(), Folds()
    whole.add(EVENTS)
    source = ListSource(EVENTS)
    while read.read(source, limit):
        pass
    assert read.cursor == len(EVENTS)
    assert same(everything(whole), everything(read))


@given(
    values=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=400),
    buckets=st.sampled_from([2, 4, 10]),
)
@settings(deadline=None)
def test_thinning_keeps_extremes_means_and_ends(values: list[float], buckets: int) -> None:
    series = Series(buckets)
    for x, value in enumerate(values):
        series.add(x, value)
    curve = series.curve()
    assert len(curve.x) <= buckets
    assert np.all(np.diff(curve.x) >= 0)
    assert series.count == len(values)
    numbers = [value for value in values if value == value]
    if numbers:
        assert np.nanmin(curve.low) == min(numbers)
        assert np.nanmax(curve.high) == max(numbers)
    if values:
        assert np.array_equal([series.first, series.last], [values[0], values[-1]], equal_nan=True)


def test_neighbours_share_their_mean() -> None:
    series = Series(4)
    for x, value in enumerate([1.0, 3.0, float("nan"), 5.0, 8.0]):
        series.add(x, value)
    curve = series.curve()
    assert series.merged == 2
    assert curve.x.tolist() == [0.5, 2.5, 4.0]
    assert curve.mean.tolist() == [2.0, 5.0, 8.0]
    assert (curve.low.tolist(), curve.high.tolist()) == ([1.0, 5.0, 8.0], [3.0, 5.0, 8.0])


def test_versions_rise_only_where_something_changed() -> None:
    folds = Folds()
    folds.add(EVENTS)
    before = {name: folds.version(name) for name in folds.names}
    folds.add([placed(99, "late", [3], ["CPU:0"])])
    after = {name: folds.version(name) for name in folds.names}
    assert {name for name in before if after[name] != before[name]} == {"placement", "evidence"}
    assert folds.columns("steps") is folds.columns("steps")


def test_kinds_of_a_newer_version_are_passed_over() -> None:
    folds = Folds()
    newer: list[Event | Unknown] = [Unknown(time_ns=1, kind="telepathy", fields={})]
    folds.add(newer)
    assert all(folds.version(name) == 0 for name in folds.names)


def test_losses_of_the_ring_add_up() -> None:
    class Leaky(ListSource):
        def since(self, cursor: int, limit: int = 10_000) -> Any:
            return super().since(cursor, limit)._replace(lost=7)

    folds = Folds()
    source = Leaky(EVENTS)
    folds.read(source, 10)
    folds.read(source, 10)
    assert folds.lost == 14


def test_forgetting_batches_does_not_depend_on_chunks() -> None:
    wanted = [event for event in EVENTS if type(event) in Batches.KINDS]
    whole, parts = Batches(most_bytes=30_000), Batches(most_bytes=30_000)
    whole.add(wanted)  # type: ignore[arg-type]
    random.seed(0)
    begin = 0
    while begin < len(wanted):
        end = begin + random.randint(1, 20)
        parts.add(wanted[begin:end])  # type: ignore[arg-type]
        begin = end
    assert whole.columns()["forgotten"] > 0
    assert same(whole.columns(), parts.columns())
