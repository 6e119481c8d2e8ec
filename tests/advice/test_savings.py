"""Savings of remedies are those of a clock outside of distlab."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from tests.patience import measured

_FACTOR: Final = 4
"""The machine does other things as well; each remedy makes its steps many times as fast."""

Step = Callable[[], Any]


class Pair(NamedTuple):
    """A step at fault, and the same step after the remedy.

    Attributes:
      cause: What advice calls the fault.
      fault: The step at fault.
      remedied: The same step after the remedy.
      steps: How many steps at fault run before the loop waits for the last one.
    """

    cause: str
    fault: Step
    remedied: Step
    steps: int = 12


def mirrored() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def slow_source() -> Pair:
    """Examples that take 30 ms to read each time, and the same from memory."""
    strategy = mirrored()

    def generate() -> Iterator[np.ndarray]:
        for _ in itertools.count():
            time.sleep(0.03)
            yield np.ones((8, 4), np.float32)

    spec = dl.data.TensorSpec((8, 4), np.dtype("float32"))
    slow = dl.data.Dataset.from_generator(generate, output_signature=spec)
    quick = dl.data.Dataset.from_tensors(np.ones((8, 4), np.float32)).repeat()
    first, second = (iter(strategy.experimental_distribute_dataset(d)) for d in (slow, quick))
    return Pair(
        "input_bound",
        lambda: strategy.run(jnp.sum, (next(first),)),
        lambda: strategy.run(jnp.sum, (next(second),)),
    )


def one_by_one() -> Pair:
    """Thirty metrics combined one by one, and as one dict."""
    strategy = mirrored()
    state = strategy.replicate(jnp.ones((8, 4)))

    def metrics(x: Any) -> Any:
        return {f"metric{n}": x.sum() + n for n in range(30)}

    def each() -> Any:
        found = strategy.run(metrics, (state,))
        return {name: strategy.reduce("MEAN", one, axis=None) for name, one in found.items()}

    def whole() -> Any:
        return strategy.reduce("MEAN", strategy.run(metrics, (state,)), axis=None)

    return Pair("many_reductions", each, whole)


def seconds(step: Step, least: int) -> float:
    """Seconds a step of a loop that waits at its end, as loops do."""
    begun = time.perf_counter()
    for _ in range(least):
        last = step()
    jax.block_until_ready(jax.tree.leaves(last))
    return (time.perf_counter() - begun) / least


@pytest.mark.parametrize("make", [slow_source, one_by_one])
@measured
def test_the_advised_saving_is_that_of_the_remedy(make: Callable[[], Pair], tmp_path: Path) -> None:
    cause, fault, remedied, steps = make()
    seconds(remedied, 2)  # compiled
    run = tmp_path / f"{time.monotonic_ns()}"
    with dl.record(run):
        for _ in range(4):
            seconds(fault, steps)
    with dl.Run.open(run) as opened:
        told = [one for one in opened.advice() if one.cause == cause]
    assert len(told) == 1
    times = [(seconds(fault, steps // 3), seconds(remedied, 8)) for _ in range(6)]
    before, after = (float(np.median(column)) for column in zip(*times, strict=True))
    assert before > 1.2 * after
    saved = before - after
    assert saved / _FACTOR < told[0].saves_s < saved * _FACTOR
