"""distribute_datasets_from_function: each replica takes one batch a step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab import events
from distlab.errors import ArgumentTypeError
from tests.input.feeding import local, mirrored, numbers, steps
from tests.listening import listening
from tests.synthetic import there


def _taken(replicas: int, dataset: Any) -> list[list[Any]]:
    strategy = mirrored(replicas)
    return steps(strategy, strategy.distribute_datasets_from_function(lambda _: dataset))


def test_incomplete_step_of_known_shapes_comes_as_optional_only() -> None:
    dataset = numbers(6, 2, drop=True)
    assert _taken(2, dataset) == [[[0, 1], [2, 3]]]
    strategy = mirrored(2)
    distributed = strategy.distribute_datasets_from_function(lambda _: dataset)
    iterator = iter(distributed)
    iterator.get_next_as_optional()
    assert local(strategy, iterator.get_next_as_optional().get_value()) == [[4, 5], []]
    assert not iterator.get_next_as_optional().has_value()
    assert len(distributed) == 1


def test_empty_batches_are_like_the_others_and_can_be_run_on() -> None:
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    dataset = dl.data.Dataset.from_tensor_slices((rows, np.arange(3, dtype=np.int32))).batch(2)
    strategy = mirrored(4)
    ((x, y),) = strategy.distribute_datasets_from_function(lambda _: dataset)
    assert [(p.shape, p.dtype) for p in x.values] == [
        ((size, 4), np.float32) for size in (2, 1, 0, 0)
    ]
    assert [p.shape for p in y.values] == [(2,), (1,), (0,), (0,)]
    sums = strategy.run(lambda a, b: a.sum() + b.sum(), args=(x, y))
    assert local(strategy, sums) == [6 + 22 + 1, 38 + 2, 0, 0]


def test_each_step_is_an_event() -> None:
    strategy = mirrored(3)
    dataset = numbers(7, 2)
    with listening() as heard:
        list(strategy.distribute_datasets_from_function(lambda _: dataset))
    full, last = heard.of(events.Sharding)
    assert (full.sizes, last.sizes, full.nominal, last.nominal) == ([2, 2, 2], [1, 0, 0], 2, 2)
    assert {full.policy, last.policy} == {"per_replica"}
    assert (full.bytes, last.bytes) == (24, 4)
    assert [there(e.positions).tolist() for e in (full, last)] == [
        [0, 1, 2, 3, 4, 5],
        [6],
    ]


def test_positions_in_several_sources_are_not_mixed_up() -> None:
    strategy = mirrored(2)
    options = dl.InputOptions(experimental_replication_mode=dl.InputReplicationMode.PER_REPLICA)
    with listening() as heard:
        list(strategy.distribute_datasets_from_function(lambda _: numbers(2, 2), options))
    (event,) = heard.of(events.Sharding)
    assert event.indices is None
    (preview,) = heard.of(events.Preview)
    assert (preview.batch, np.frombuffer(preview.data, "<f4").tolist()) == (0, [0, 1, 0, 1])


@settings(max_examples=15, deadline=None)
@given(size=st.integers(0, 40), batch=st.integers(1, 7), replicas=st.integers(1, 8))
def test_every_example_is_taken_once_in_order(size: int, batch: int, replicas: int) -> None:
    taken = _taken(replicas, numbers(size, batch))
    assert [n for step in taken for part in step for n in part] == list(range(size))
    assert all(len(step) == replicas for step in taken)
    assert len(taken) == math.ceil(math.ceil(size / batch) / replicas)


def test_a_generator_is_read_once_and_not_before_it_is_asked() -> None:
    read = []

    def batches() -> Iterator[Any]:
        for i in range(3):
            read.append(i)
            yield np.full(1, i)

    strategy = mirrored(2)
    distributed = strategy.distribute_datasets_from_function(lambda _: batches())
    assert read == []
    assert steps(strategy, distributed) == [[[0], [1]], [[2], []]]


def test_function_of_batches_stands_for_a_dataset_to_its_end() -> None:
    def dataset_fn(context: dl.InputContext) -> Any:
        size = context.get_per_replica_batch_size(4)
        batches = iter(np.arange(10, dtype=np.float32).reshape(-1, size))
        return lambda: next(batches)

    strategy = mirrored(2)
    dataset = strategy.distribute_datasets_from_function(dataset_fn)
    assert steps(strategy, dataset) == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], []]]


def test_another_result_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"dataset_fn must return a dataset.*got int"):
        mirrored(2).distribute_datasets_from_function(lambda _: 3)
