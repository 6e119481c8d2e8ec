from __future__ import annotations

import re
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import distlab as dl
from distlab.errors import DonatedError, NotFiniteWarning
from distlab.events import Event, Lost, Metric
from distlab.recording import Recording
from distlab.recording.metrics import Metrics
from tests.patience import LIMIT_SECONDS


def logged(*values: Any) -> list[Event]:
    events: list[Event] = []
    metrics = Metrics(events.append)
    for step, value in enumerate(values):
        metrics.log(step, {"value": value})
    metrics.flush()
    return events


def waiting(number: float) -> tuple[threading.Event, jax.Array]:
    """A number that is not computed until the event is set."""
    release = threading.Event()

    def wait(value: Any) -> Any:
        release.wait(30)
        return value

    # A program on one device with a callback would be run at once.
    replicated = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("replica",)), PartitionSpec())
    slow = jax.jit(
        lambda x: jax.pure_callback(wait, jax.ShapeDtypeStruct((), jnp.float32), x),
        out_shardings=replicated,
    )
    return release, slow(jax.device_put(np.float32(number), replicated))


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (True, 1.0),
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7.0),
        (np.array(2.5), 2.5),
        (jnp.float32(1.5), 1.5),
        (jnp.bfloat16(1.5), 1.5),
    ],
    ids=repr,
)
def test_one_real_number_is_taken_in_any_form(value: Any, number: float) -> None:
    (event,) = logged(value)
    assert isinstance(event, Metric)
    assert event.values == {"value": number}


def test_values_still_being_computed_do_not_hold_up_the_caller() -> None:
    release, pending = waiting(2.0)
    events: list[Event] = []
    metrics = Metrics(events.append)
    before = time.monotonic_ns()
    metrics.log(0, {"loss": pending})
    metrics.log(1, {"loss": 1.0})
    after = time.monotonic_ns()
    assert events == []
    release.set()
    metrics.flush()
    assert [(e.step, e.values) for e in events if isinstance(e, Metric)] == [
        (0, {"loss": 2.0}),
        (1, {"loss": 1.0}),
    ]
    assert all(before <= event.time_ns <= after for event in events)


def test_a_value_that_was_donated_is_refused() -> None:
    value = jnp.float32(1.0) + 1
    value.delete()
    with pytest.raises(DonatedError, match=r"logged as 'value' was deleted.*Log the result"):
        logged(value)


def test_what_is_lost_before_it_can_be_read_is_told_of(tmp_path: Path) -> None:
    release, gone = waiting(2.0)
    reason = "The value logged as 'gone' was deleted, or donated to a call, before it was read. Log"
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with dl.record(tmp_path / "run") as recording:
            recording.log(1, gone=gone, kept=1.0)
            gone.delete()
            release.set()
    (warning,) = told
    assert warning.category is RuntimeWarning
    assert str(warning.message).startswith(reason)
    with dl.Run.open(tmp_path / "run") as run:
        assert [e.values for e in run.events("metric") if type(e) is Metric] == [{"kept": 1.0}]
        (lost,) = [e.reason for e in run.events("lost") if type(e) is Lost]
    assert lost.startswith(reason)


def test_what_is_never_computed_is_given_up_at_the_end() -> None:
    release, pending = waiting(2.0)
    events: list[Event] = []
    metrics = Metrics(events.append)
    metrics.log(0, {"loss": pending})
    metrics.flush(seconds=0.05)
    release.set()
    pending.block_until_ready()
    (event,) = events
    assert isinstance(event, Lost)
    assert event.count == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), jnp.float32(jnp.nan)])
def test_a_metric_that_is_not_finite_is_told_of_once(tmp_path: Path, number: Any) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with dl.record(tmp_path / "run") as recording:
            recording.log(2, loss=1.0)
            recording.log(3, loss=number)
            recording.log(4, loss=number)
        with dl.record(None) as recording:
            recording.log(5, accuracy=1.0)
    (warning,) = told
    assert warning.category is NotFiniteWarning
    assert re.match(r"The metric 'loss' is (nan|inf) at step 3.*SUM", str(warning.message))
    # Told of when it was logged, or, where it was not computed yet, when the block was left.
    assert Path(warning.filename).name in {"test_metrics.py", "recording.py"}
    with dl.Run.open(tmp_path / "run") as run:
        metrics = [event for event in run.events("metric") if isinstance(event, Metric)]
    assert [event.step for event in metrics] == [2, 3, 4]


def interrupted(run: Recording, at: int) -> bool:
    """Logs, and logs amid that at one of Python's calls; returns whether there is such a call."""
    calls = 0

    def interrupt(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call"
        if calls == at:
            sys.setprofile(None)
            run.log(at, inner=1.0)

    sys.setprofile(interrupt)
    run.log(at, loss=1.0)
    sys.setprofile(None)
    return calls >= at


def test_a_log_amid_another_is_kept(tmp_path: Path) -> None:
    """As that of a signal handler."""
    logged: list[int] = []

    def log() -> None:
        logged.append(next(at for at in range(1, 1_000) if not interrupted(run, at)))

    with dl.record(tmp_path / "run", probe=False) as run:
        thread = threading.Thread(target=log, daemon=True)
        thread.start()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()
    with dl.Run.open(tmp_path / "run") as stored:
        metrics = [event for event in stored.events("metric") if isinstance(event, Metric)]
    names = [name for metric in metrics for name in metric.values]
    assert logged[0] > 10
    assert (names.count("loss"), names.count("inner")) == (logged[0], logged[0] - 1)
