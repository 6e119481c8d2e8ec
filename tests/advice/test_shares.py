"""The shares of advice are those that a program's own clock finds in the same steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.advice import Advice, advise
from distlab.events import Copy, Event, Strategy
from tests.advice.programs import for_seconds
from tests.advice.slow_steps import waits
from tests.advice.test_finders import MS, step
from tests.patience import measured, only
from tests.recording.samples import made

pytestmark = pytest.mark.measured

_WITHIN: Final = 0.15

Step = Callable[[], float]
"""Takes a step, and returns the seconds of the calls that the advice is about."""


class Run(NamedTuple):
    """Advice on a program, and the times of the program's own clock.

    Attributes:
      advice: All advice.
      share: The share of the loop's time that the calls took.
    """

    advice: list[Advice]
    share: float

    def of(self, cause: str) -> list[Advice]:
        return [one for one in self.advice if one.cause == cause]


def mirrored() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def timed(call: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def busy(seconds: float) -> None:
    """Computes in Python for so long."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def recorded(take: Step, folder: Path, steps: int = 16, *, in_run: bool = False) -> Run:
    """Runs steps in a recording.

    As in advice, the loop's time counts from the first call of `run`: what comes after that in the
    first step counts, and what is part of the call, or of the batch before it, does not.
    """
    take()  # compiled
    take()
    run = folder / f"{time.monotonic_ns()}"
    with dl.record(run):
        if in_run:
            take()
        begun = time.perf_counter()
        spent = [take() for _ in range(steps)]
        whole = time.perf_counter() - begun
    with dl.Run.open(run) as opened:
        told = opened.advice()
    return Run(told, sum(spent) / whole)


def reading(size: int, *, dtype: Any = None, computing: int = 0) -> Step:
    """Reads a variable of so many bytes after each step, which multiplies large matrices."""
    strategy = mirrored()
    with strategy.scope():
        weights = dl.Variable(jnp.zeros(size // 4), name="weights")
        matrix = dl.Variable(jnp.ones((512, 512)), name="matrix")

    def train_step() -> Any:
        x = matrix.value()
        for _ in range(computing):
            x = jnp.tanh(x @ matrix.value())
        weights.assign_add(jnp.ones_like(weights.value()) * x[0, 0])
        return x.sum()

    def take() -> float:
        loss = strategy.run(train_step)
        if not computing:
            jax.block_until_ready((loss, weights.value()))
        return timed(lambda: np.asarray(weights, dtype))

    return take


def test_a_read_that_waits_for_busy_devices_is_no_copy(tmp_path: Path) -> None:
    run = recorded(reading(4_096, computing=12), tmp_path)
    assert run.share > 0.3  # what the call takes, nearly all of it waiting
    assert run.of("host_transfer") == []


@measured
def test_the_share_of_reads_that_copy_is_theirs(tmp_path: Path) -> None:
    run = recorded(reading(16 << 20, dtype=np.float64), tmp_path)
    (one,) = run.of("host_transfer")
    assert one.share == pytest.approx(run.share, rel=_WITHIN)
    assert "waits" not in one.text


def a_slow_source() -> Step:
    """Batches that take 30 ms to make, for a program that does other things for 15 ms."""
    strategy = mirrored()

    def generate() -> Iterator[np.ndarray]:
        while True:
            busy(0.03)
            yield np.ones((8, 4), np.float32)

    spec = dl.data.TensorSpec((8, 4), np.dtype("float32"))
    dataset = dl.data.Dataset.from_generator(generate, output_signature=spec)
    batches = iter(strategy.experimental_distribute_dataset(dataset))

    def take() -> float:
        begun = time.perf_counter()
        batch = next(batches)
        waited = time.perf_counter() - begun
        strategy.run(jnp.sum, (batch,))
        busy(0.015)
        return waited

    return take


@measured
def test_a_share_is_that_of_the_programs_clock(tmp_path: Path) -> None:
    run = recorded(a_slow_source(), tmp_path, in_run=True)
    assert only(run.of("input_bound")).share == pytest.approx(run.share, rel=_WITHIN)


@measured
def test_the_share_of_a_slow_replica_is_what_equal_ones_save(
    tmp_path: Path,
) -> None:
    slow, equal = waits(mirrored(), 60), waits(mirrored(), 20)
    slow()
    equal()
    before = [timed(equal) for _ in range(10)]
    run = tmp_path / f"{time.monotonic_ns()}"
    with dl.record(run):
        taken = [timed(slow) for _ in for_seconds(4, 40)]
    after = [timed(equal) for _ in range(10)]
    with dl.Run.open(run) as opened:
        one = only([one for one in opened.advice() if one.cause == "slow_replica"])
    assert one.subject == "replica 1"
    share = 1 - float(np.median(before + after)) / float(np.median(taken))
    assert one.share == pytest.approx(share, rel=_WITHIN)


def slow_to_compile(x: Any) -> Any:
    """Takes a second to compile."""
    for number in range(40):
        x = jnp.cumsum(jnp.sin(x) * number)
    return x


@measured
def test_much_logging_is_recordings_cost_and_not_own_python(tmp_path: Path) -> None:
    """Two thousand numbers in each step, after a compilation."""
    strategy = mirrored()
    state = strategy.replicate(jnp.ones((8, 4)))
    numbers = {f"metric{n}": float(n) for n in range(2_000)}
    run = tmp_path / f"{time.monotonic_ns()}"
    logging = 0.0
    with dl.record(run) as recording:
        strategy.run(slow_to_compile, (state,))
        begun = time.perf_counter()
        while time.perf_counter() < begun + 3:
            strategy.run(jnp.sum, (state,))
            took = timed(lambda: recording.log(**numbers))
            logging += took
            busy(took / 3)
        loop = time.perf_counter() - begun
    with dl.Run.open(run) as opened:
        told = {one.cause: one for one in opened.advice()}
    assert told["recording_cost"].text.startswith("Calls of log take")
    assert told["recording_cost"].share == pytest.approx(logging / loop, rel=_WITHIN)
    assert "host_bound" not in told


def test_copies_between_devices_share_is_that_of_starting_them() -> None:
    """Twenty steps of 50 ms, with a copy of 20 ms."""
    events: list[Event] = []
    for number in range(20):
        begun = number * 50 * MS
        events += [
            step(number, begun),
            made(
                Copy,
                time_ns=begun + 10 * MS,
                strategy=0,
                direction="between_devices",
                bytes=1 << 20,
                duration_ns=20 * MS,
            ),
        ]
    (one,) = advise(events)
    assert "1.05 MB each time; starting that takes 20 ms, 41 % of the loop's time." in one.text
    assert one.text.endswith("The devices copy after that, before they compute.")


def passing_batches_on(strategy: str, milliseconds: int) -> list[str]:
    """Twenty steps of 10 ms, which receive batches of 100 kB from the host; what is named."""
    events: list[Event] = [
        Strategy(time_ns=1, strategy=0, name=strategy, devices=["CPU:0", "CPU:1"])
    ]
    for number in range(20):
        begun = number * 10 * MS
        taken = milliseconds * MS
        copied = made(Copy, time_ns=begun, strategy=0, bytes=100_000, duration_ns=taken)
        events += [step(number, begun), copied]
    return [one.cause for one in advise(events)]


def test_batches_that_closures_pass_on_are_named_where_slow() -> None:
    assert passing_batches_on("MirroredStrategy", 1) == ["host_transfer"]
    assert passing_batches_on("ParameterServerStrategy worker 0", 1) == []
    assert passing_batches_on("ParameterServerStrategy worker 0", 5) == ["host_transfer"]
