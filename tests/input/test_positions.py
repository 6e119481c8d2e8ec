"""state and restore: a restored iterator repeats the elements after its position."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.data import AutoShardPolicy
from distlab.errors import InvalidArgumentError
from tests.input.feeding import local, mirrored, with_policy

PER_REPLICA = dl.InputReplicationMode.PER_REPLICA


def _plain(size: int, batch: int) -> dl.data.Dataset:
    rows = np.arange(size, dtype=np.float32)
    return dl.data.Dataset.from_tensor_slices(rows).shuffle(5).batch(batch)


def _divided(strategy: dl.Strategy, dataset: dl.data.Dataset, ahead: int) -> Any:
    options = dl.InputOptions(experimental_per_replica_buffer_size=ahead)
    return strategy.experimental_distribute_dataset(dataset, options)


def _undivided(strategy: dl.Strategy, dataset: dl.data.Dataset, ahead: int) -> Any:
    return _divided(strategy, with_policy(dataset, AutoShardPolicy.OFF), ahead)


def _in_turn(strategy: dl.Strategy, dataset: dl.data.Dataset, ahead: int) -> Any:
    options = dl.InputOptions(experimental_per_replica_buffer_size=ahead)
    return strategy.distribute_datasets_from_function(lambda _: dataset, options)


def _each_its_own(strategy: dl.Strategy, dataset: dl.data.Dataset, ahead: int) -> Any:
    options = dl.InputOptions(
        experimental_replication_mode=PER_REPLICA, experimental_per_replica_buffer_size=ahead
    )
    return strategy.distribute_datasets_from_function(
        lambda context: dataset.skip(context.input_pipeline_id), options
    )


WAYS = (_divided, _undivided, _in_turn, _each_its_own)


@settings(max_examples=20, deadline=None)
@given(
    way=st.sampled_from(WAYS),
    size=st.integers(0, 25),
    batch=st.integers(1, 6),
    replicas=st.integers(1, 5),
    ahead=st.sampled_from([0, 1, 3]),
    data=st.data(),
)
def test_a_position_can_be_gone_back_to_from_anywhere(
    way: Callable[..., Any], size: int, batch: int, replicas: int, ahead: int, data: st.DataObject
) -> None:
    strategy = mirrored(replicas)
    distributed = way(strategy, _plain(size, batch), ahead)
    iterator = iter(distributed)
    positions = [json.loads(json.dumps(iterator.state()))]
    elements = []
    for element in iterator:
        elements.append(local(strategy, element))
        positions.append(json.loads(json.dumps(iterator.state())))
    taken = data.draw(st.integers(0, len(elements)), "taken")
    saved = data.draw(st.integers(0, len(elements)), "saved")
    other = iter(distributed)
    for _ in range(taken):
        next(other)
    other.restore(positions[saved])
    assert [local(strategy, element) for element in other] == elements[saved:]
    other.close()
    # Also at the end, which the position records.
    iterator.restore(positions[-1])
    assert not iterator.get_next_as_optional().has_value()


@pytest.mark.parametrize("way", WAYS)
def test_a_closed_iterator_goes_on_where_it_was_closed(way: Callable[..., Any]) -> None:
    def count() -> Iterator[np.float32]:
        yield from np.arange(17, dtype=np.float32)

    spec = dl.data.TensorSpec((), np.dtype("float32"))
    dataset = dl.data.Dataset.from_generator(count, output_signature=spec).prefetch(2).batch(4)
    strategy = mirrored(3)
    distributed = way(strategy, dataset, 0)
    elements = [local(strategy, element) for element in distributed]
    iterator = iter(distributed)
    for element in elements:
        iterator.close()
        assert local(strategy, next(iterator)) == element
    iterator.close()
    assert not iterator.get_next_as_optional().has_value()


def test_a_position_fits_the_same_program_started_anew() -> None:
    strategy = mirrored(2)
    first = iter(_divided(strategy, _plain(20, 4), 1))
    [next(first) for _ in range(2)]
    position = first.state()
    rest = [local(strategy, element) for element in first]
    again = iter(_divided(mirrored(2), _plain(20, 4), 1))
    again.restore(position)
    assert [local(strategy, element) for element in again] == rest


def test_restoring_from_the_end_goes_on_and_counts_on() -> None:
    strategy = mirrored(2)
    iterator = iter(_divided(strategy, _plain(8, 4), 1))
    next(iterator)
    position = iterator.state()
    assert len(list(iterator)) == 1
    iterator.restore(position)
    assert len(list(iterator)) == 1
    with pytest.raises(dl.errors.OutOfRangeError, match="after 2 batches"):
        iterator.get_next()


def test_position_of_something_else_is_refused_without_harm() -> None:
    strategy = mirrored(2)
    in_turn, divided = (iter(w(strategy, _plain(8, 4), 1)) for w in (_in_turn, _divided))
    with pytest.raises(InvalidArgumentError, match="made in the same way"):
        in_turn.restore(divided.state())
    with pytest.raises(InvalidArgumentError, match="divides global batches"):
        divided.restore(in_turn.state())
    assert len(list(divided)) == 2
    with pytest.raises(InvalidArgumentError, match=r"what its state\(\) returned, got \{'x': 1\}"):
        in_turn.restore({"x": 1})
    assert len(list(in_turn)) == 1
