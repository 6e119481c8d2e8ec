"""A loop over a distributed dataset reads a source as a plain loop does: once, in its order."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl

Pipeline = Callable[[dl.data.Dataset], dl.data.Dataset]


class Counting:
    """A source whose elements are gone once they were read, as those of a queue."""

    def __init__(self, count: int) -> None:
        self.given = 0
        self.calls = 0
        self._count = count

    def __call__(self) -> Iterator[np.ndarray[Any, Any]]:
        self.calls += 1
        while self.given < self._count:
            self.given += 1
            yield np.full(2, self.given, np.int32)


def verbs(calls: list[int], folder: Path) -> dict[str, Pipeline]:
    def counted(x: Any) -> Any:
        calls.append(int(np.ravel(x)[0]))
        return x + np.int32(1)

    return {
        "map": lambda d: d.map(counted),
        "filter": lambda d: d.filter(lambda x: bool(counted(x).ravel()[0] % 3)),
        "take": lambda d: d.take(7),
        "skip": lambda d: d.skip(1),
        "prefetch": lambda d: d.prefetch(1),
        "enumerate": lambda d: d.enumerate().map(lambda _, x: x),
        "take_while": lambda d: d.take_while(lambda x: bool((x < 9).all())),
        "interleave": lambda d: d.interleave(dl.data.Dataset.from_tensors, cycle_length=2),
        "cache": lambda d: d.cache(),
        "cache in a file": lambda d: d.cache(str(folder / str(len(list(folder.iterdir()))))),
        "shuffle": lambda d: d.shuffle(3, seed=1),
        "batch and unbatch": lambda d: d.batch(2).unbatch(),
    }


NAMES = list(verbs([], Path()))


@pytest.mark.slow
@given(names=st.lists(st.sampled_from(NAMES), max_size=4), batch=st.integers(1, 3))
@settings(max_examples=60)
def test_a_distributed_loop_reads_what_a_plain_one_does(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], batch: int
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def read(distribute: bool) -> tuple[Any, ...]:
        source, calls = Counting(11), list[int]()
        dataset = dl.data.Dataset.from_generator(
            source, output_signature=dl.data.TensorSpec([2], "int32")
        )
        made = verbs(calls, tmp_path_factory.mktemp("kept"))
        for name in names:
            dataset = made[name](dataset)
        dataset = dataset.batch(2 * batch)
        elements: Any = dataset
        if distribute:
            elements = strategy.experimental_distribute_dataset(dataset)
        rows = [
            row.tolist()
            for element in elements
            for part in strategy.experimental_local_results(element)
            for row in np.asarray(part)
        ]
        return rows, calls, source.given, source.calls

    assert read(True) == read(False)


def test_a_queue_that_is_filled_later_is_read_at_the_first_step() -> None:
    waiting: queue.Queue[np.int32] = queue.Queue()

    def taken() -> Iterator[np.int32]:
        while True:
            yield waiting.get(timeout=5)

    dataset = dl.data.Dataset.from_generator(
        taken, output_signature=dl.data.TensorSpec([], "int32")
    )
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    iterator = iter(strategy.experimental_distribute_dataset(dataset.map(lambda x: x + 1).batch(2)))
    for number in range(4):
        waiting.put(np.int32(number))
    assert [part.tolist() for part in next(iterator).values] == [[1], [2]]
