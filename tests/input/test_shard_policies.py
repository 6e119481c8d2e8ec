"""AutoShardPolicy: the division of batches on one worker, and the shards of several."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab import events
from distlab.data import AutoShardPolicy
from distlab.input.iterator import DistributedIterator
from tests.input.feeding import lines, mirrored, numbers, steps, with_policy
from tests.listening import listening
from tests.synthetic import there


def _sizes(replicas: int, dataset: dl.data.Dataset) -> list[list[int]]:
    strategy = mirrored(replicas)
    return [
        [len(part) for part in step]
        for step in steps(strategy, strategy.experimental_distribute_dataset(dataset))
    ]


def test_files_fill_the_first_replicas_unless_by_data(tmp_path: Path) -> None:
    dataset = lines(tmp_path, 1, 13).batch(8)
    last = {
        policy: _sizes(4, with_policy(dataset, policy))[-1]
        for policy in (AutoShardPolicy.AUTO, AutoShardPolicy.FILE, AutoShardPolicy.DATA)
    }
    assert last == {
        AutoShardPolicy.AUTO: [2, 2, 1, 0],
        AutoShardPolicy.FILE: [2, 2, 1, 0],
        AutoShardPolicy.DATA: [2, 2, 1, 0],
    }
    assert _sizes(4, with_policy(lines(tmp_path, 1, 10).batch(8), AutoShardPolicy.FILE)) == [
        [2, 2, 2, 2],
        [2, 0, 0, 0],
    ]
    assert _sizes(4, with_policy(lines(tmp_path, 1, 10).batch(8), AutoShardPolicy.DATA)) == [
        [2, 2, 2, 2],
        [1, 1, 0, 0],
    ]


def test_off_an_uneven_batch_gives_first_replicas_one_more() -> None:
    assert _sizes(3, with_policy(numbers(9, 5), AutoShardPolicy.OFF)) == [[2, 2, 1], [2, 2, 0]]
    assert _sizes(3, numbers(9, 5)) == [[2, 2, 1], [2, 2, 0]]
    assert _sizes(3, with_policy(numbers(6, 4), AutoShardPolicy.OFF)) == [[2, 1, 1], [2, 0, 0]]
    assert _sizes(3, numbers(6, 4)) == [[2, 2, 0], [1, 1, 0]]


@settings(max_examples=15, deadline=None)
@example(size=1, batch=3, replicas=2, policy=AutoShardPolicy.OFF)
@given(
    size=st.integers(0, 50),
    batch=st.integers(1, 12),
    replicas=st.integers(1, 8),
    policy=st.sampled_from([AutoShardPolicy.AUTO, AutoShardPolicy.OFF, AutoShardPolicy.DATA]),
)
def test_every_example_comes_once_in_order_and_events_tell_where(
    size: int, batch: int, replicas: int, policy: AutoShardPolicy
) -> None:
    dataset = with_policy(numbers(size, batch), policy)
    strategy = mirrored(replicas)
    with listening() as heard:
        seen = steps(strategy, strategy.experimental_distribute_dataset(dataset))
    assert [n for step in seen for part in step for n in part] == list(range(size))
    told = heard.of(events.Sharding)
    assert [event.sizes for event in told] == [[len(part) for part in step] for step in seen]
    for event, step in zip(told, seen, strict=True):
        indices = there(event.positions).tolist()
        assert indices == [n for part in step for n in part]
        assert event.nominal == -(-batch // replicas)
        assert event.bytes == 4 * len(indices)


def test_falling_back_on_data_is_said_over_several_workers_only(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING, "distlab"):
        _sizes(2, numbers(8, 4))
        dl.data.auto_shard(with_policy(numbers(8, 4), AutoShardPolicy.DATA), 2, 0)
        dl.data.auto_shard(lines(tmp_path, 2, 4), 2, 0)
        assert caplog.messages == []
        dl.data.auto_shard(numbers(8, 4), 2, 1)
    (message,) = caplog.messages
    assert "each of the 2 workers reads all of it" in message


def test_a_hint_holds_on_one_worker_too() -> None:
    hint = dl.data.SHARD_HINT
    dataset = dl.data.Dataset.range(6).shard(hint, hint).batch(4)
    strategy = mirrored(2)
    distributed = strategy.experimental_distribute_dataset(
        with_policy(dataset, AutoShardPolicy.HINT)
    )
    assert isinstance(iter(distributed), DistributedIterator)
    assert steps(strategy, distributed) == [[[0, 1], [2, 3]], [[4, 5], []]]
