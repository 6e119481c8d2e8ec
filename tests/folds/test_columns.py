"""The columns that folds compute are those that their types declare."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_overloads, get_type_hints

import numpy as np
import pytest

from distlab.advice import advise_on
from distlab.events import (
    Capture,
    Copy,
    DeviceSample,
    Error,
    Event,
    Loop,
    Lost,
    RecorderCost,
    Unknown,
)
from distlab.folds import BatchDetail, ComparisonColumns, Folds, compare
from tests.recording.samples import made
from tests.synthetic import START_NS, there, whole_run

MS = 1_000_000


def everything() -> Folds:
    """A run with every kind of event, and with a value in every column."""
    captured = np.array([(0, 5 * MS, 0), (5 * MS, 2 * MS, 1)], "<i8").tobytes()
    others: list[Event] = [
        made(Capture, time_ns=START_NS + 10 * MS, start_ns=START_NS, spans=[captured, captured]),
        made(Copy, time_ns=START_NS + MS),
        made(RecorderCost, time_ns=START_NS + 1_000 * MS, start_ns=START_NS),
        Loop(time_ns=START_NS + MS, loop=0, name="epochs", state="running", position=3),
        Error(time_ns=START_NS + MS, where="run", type="ValueError", message="no"),
        Lost(time_ns=START_NS + MS, count=1, reason="disk full"),
        made(
            DeviceSample,
            time_ns=START_NS + 30_000 * MS,
            start_ns=START_NS + 29_000 * MS,
            busy_ns=[MS] * 8,
            memory_bytes=[1] * 8,
            used_bytes=[3] * 8,
            utilization=[0.5] * 8,
        ),
    ]
    run: list[Event | Unknown] = [*whole_run(40), *others]
    folds = Folds()
    folds.add(run)
    return folds


@pytest.fixture(scope="module")
def folds() -> Folds:
    return everything()


def type_of(name: str) -> Any:
    """Returns the `TypedDict` of a fold's columns."""
    return next(
        get_type_hints(overload)["return"]
        for overload in get_overloads(Folds.columns)
        if get_args(get_type_hints(overload)["name"]) == (name,)
    )


def fits(value: Any, kind: Any) -> bool:
    """Returns whether a value, with all that it contains, has a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if hasattr(origin, "__value__"):  # an alias made by `type`, as NDArray is since NumPy 2.5
        return fits(value, origin.__value__[inner])
    if kind is Any or origin in (Union, UnionType):
        return kind is Any or any(fits(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is np.ndarray:
        (scalar,) = get_args(inner[1])
        return isinstance(value, np.ndarray) and value.dtype == np.dtype(scalar)
    if origin is list:
        return isinstance(value, list) and all(fits(one, inner[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(one, inner[1]) for key, one in value.items()
        )
    if origin is tuple:
        parts = inner[:1] * len(value) if inner[-1] is ... else inner
        return isinstance(value, tuple) and all(map(fits, value, parts))
    if hasattr(kind, "__required_keys__"):
        return isinstance(value, dict) and wrong(value, kind) == {}
    if kind is float:
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is (NoneType if kind is None else kind)


def wrong(columns: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """Returns the columns that are missing, too many, or of another type."""
    hints = get_type_hints(kind)
    known = {name: value for name, value in columns.items() if name in hints}
    return {
        **dict.fromkeys(hints.keys() - columns.keys(), "missing"),
        **dict.fromkeys(columns.keys() - hints.keys(), "unknown"),
        **{name: value for name, value in known.items() if not fits(value, hints[name])},
    }


def test_folds_compute_the_columns_that_types_declare(folds: Folds) -> None:
    for name in folds.names:
        kind = type_of(name)
        for run in (folds, Folds()):
            assert wrong(run.columns(name), kind) == {}, name
    assert wrong(there(folds.batch()), BatchDetail) == {}
    assert wrong(compare(folds, Folds()), ComparisonColumns) == {}


def test_evidence_of_every_kind_is_enough_for_advice(folds: Folds) -> None:
    assert "recording_cost" in {advice.cause for advice in advise_on(folds.columns("evidence"))}
