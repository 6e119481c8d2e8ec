"""Whatever is logged is refused at the call or stored, and never keeps later numbers out."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import math
import threading
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

import distlab as dl
from distlab.errors import (
    DistlabError,
)
from distlab.events import Lost, Metric
from distlab.recording import RingRecorder, Run, record
from tests.recording import samples


class Hostile:
    """An object that fails wherever it is used."""

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __index__(self) -> int:
        raise ValueError("no index")

    shape = ()


ODD: list[Any] = [
    *(Hostile(), 10**400, 2**70, -1, 2**63, 1.5, math.nan, math.inf),
    *("epoch 1", "\ud800", "", "x" * 501, "a\0b", b"\xff", None, True, 1j),
    *(decimal.Decimal("1e400"), fractions.Fraction(1, 3), dt.timedelta(1)),
    *(np.datetime64("2020-01-01"), np.float64(3), np.uint64(2**64 - 1), np.array(7)),
    *(np.zeros((), [("a", int)]), np.str_("loss"), np.longdouble("1e4000"), object),
    *({"b": 1, 2: 3}, jnp.int32(4), jnp.zeros(3), jax.random.key(0)),
]

anything = some.one_of(
    some.sampled_from(ODD),
    some.integers(),
    some.floats(),
    some.text(),
    some.text(alphabet=some.characters(categories=["Cs", "Lu"])),
    some.binary(),
    some.complex_numbers(),
    some.fractions(),
    some.decimals(),
    some.datetimes(),
    some.recursive(some.integers(), some.lists),
    some.dictionaries(some.one_of(some.text(), some.integers()), some.floats()),
)


@pytest.fixture(scope="module")
def open_recording(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One recording for all examples of a property."""
    folder = tmp_path_factory.mktemp("logged") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with record(folder) as recording:
            yield recording, folder


def stored_after(recording: Any, folder: Path, number: float) -> list[Metric]:
    """Logs one more number, and returns the metrics of the run up to that one."""
    recording.log(7, last=number)
    found: list[Metric] = []
    with Run.open(folder) as run:
        for event in run.follow("metric", idle_seconds=20):
            assert isinstance(event, Metric)
            found.append(event)
            if event.values == {"last": number}:
                return found
    raise AssertionError("a number that was logged later did not arrive")


_numbers = iter(range(1_000_000))


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(some.lists(some.tuples(anything, some.text(), anything), min_size=1, max_size=12))
def test_anything_is_refused_at_the_call_or_stored(
    open_recording: Any, calls: list[tuple[Any, str, Any]]
) -> None:
    recording, folder = open_recording
    accepted = []
    for step, name, value in calls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                recording.log(step, **({name: value} if name != "step" else {"x": value}))
        except DistlabError:
            continue
        accepted.append((name if name != "step" else "x", float(jax.tree.leaves(value)[0])))
    found = stored_after(recording, folder, float(next(_numbers)))[-len(accepted) - 1 :]
    got = [next(iter(event.values.items())) for event in found[:-1]]
    assert repr(got) == repr(accepted)


def test_a_step_may_be_a_number_that_jax_counts(recorder: RingRecorder) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        counter = dl.Variable(5, dtype=jnp.int32)
    with record(None) as recording:
        for step in (counter, jnp.int32(6), np.int64(7), np.array(8)):
            recording.log(step, loss=1.0)
    metrics = [event for event in recorder.ring.since(0).events if isinstance(event, Metric)]
    assert [event.step for event in metrics] == [5, 6, 7, 8]


def test_event_that_no_file_can_hold_is_counted_and_skipped(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    odd: Any = object()
    threads = threading.active_count()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with record(tmp_path) as recording:
            recorder.emit(samples.step(0))
            recorder.emit(Metric(time_ns=1, step=0, values={"loss": odd}))
            recorder.emit(Metric(time_ns=2**70, step=0, values={"loss": 1.0}))
            recorder.emit(Metric(time_ns=3, step=2**70, values={"loss": 1.0}))
            recording.log(1, loss=0.5)
            recorder.emit(samples.step(1))
    said = [str(one.message) for one in told if one.category is RuntimeWarning]
    assert len(said) == 3
    assert all("'metric' could not be encoded" in one for one in said)
    with Run.open(tmp_path) as run:
        summary = run.summary()
        assert [event.step for event in run.events("step")] == [0, 1]  # type: ignore[union-attr]
    assert (summary["metrics"], summary["lost"], summary["steps"]) == ({"loss": 0.5}, 3, 2)
    assert summary["status"] == "finished"
    assert sum(isinstance(event, Lost) for event in recorder.ring.since(0).events) == 3
    assert threading.active_count() <= threads + 1
