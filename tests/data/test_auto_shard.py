"""auto_shard and worker_batches: which worker gets what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distlab.data import (
    SHARD_HINT,
    AutoShardPolicy,
    Dataset,
    Options,
    TextLineDataset,
    auto_shard,
    worker_batches,
)
from distlab.data.sharding.worker_batches import global_batch_size
from distlab.errors import InvalidArgumentError


def _policy(dataset: Dataset, policy: AutoShardPolicy) -> Dataset:
    options = Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def _lines(folder: Path, files: int, lines: int) -> Dataset:
    names = []
    for number in range(files):
        path = folder / f"{number:02}.txt"
        path.write_text("".join(f"{number * lines + line}\n" for line in range(lines)))
        names.append(path)
    return Dataset.list_files([str(name) for name in names], shuffle=False)


def _numbers(names: Dataset) -> Dataset:
    return TextLineDataset(names).map(np.int32)


def _shards(dataset: Dataset, workers: int) -> list[Any]:
    return [
        [np.asarray(value).tolist() for value in auto_shard(dataset, workers, index)]
        for index in range(workers)
    ]


def _steps(dataset: Dataset, workers: int, index: int, replicas: int) -> list[Any]:
    return [
        [part.tolist() for part in step]
        for step in worker_batches(dataset, workers, index, replicas)
    ]


def test_shuffled_repeated_files_are_each_on_one_worker(tmp_path: Path) -> None:
    names = _lines(tmp_path, 5, 2).shuffle(5).repeat(2)
    seen = [set(shard) for shard in _shards(_numbers(names), 2)]
    assert seen[0] == {0, 1, 4, 5, 8, 9}
    assert seen[1] == {2, 3, 6, 7}


def test_files_read_in_lambdas_and_in_parts_of_a_zip_are_found(tmp_path: Path) -> None:
    names = _lines(tmp_path, 4, 1)
    nested = names.interleave(lambda name: _numbers(Dataset.from_tensors(name)), cycle_length=2)
    assert _shards(nested, 2) == [[0, 2], [1, 3]]
    both = Dataset.zip(_numbers(names), nested).map(lambda a, b: a * 10 + b)
    assert _shards(both, 2) == [[0, 22], [11, 33]]


def test_the_hint_says_where_to_divide(tmp_path: Path) -> None:
    hinted = Dataset.range(8).shard(SHARD_HINT, SHARD_HINT).batch(2)
    assert _shards(_policy(hinted, AutoShardPolicy.HINT), 2) == [
        [[0, 2], [4, 6]],
        [[1, 3], [5, 7]],
    ]
    with pytest.raises(InvalidArgumentError, match="SHARD_HINT"):
        _shards(_policy(Dataset.range(8), AutoShardPolicy.HINT), 2)
    with pytest.raises(InvalidArgumentError, match=r"AutoShardPolicy\.FILE divides"):
        _shards(_policy(Dataset.range(8), AutoShardPolicy.FILE), 2)
    with pytest.raises(InvalidArgumentError, match="fewer files than the 2 workers"):
        _shards(_numbers(_lines(tmp_path, 1, 3)), 2)
    with pytest.raises(InvalidArgumentError, match="one of 2 workers"):
        auto_shard(Dataset.range(8), 2, 2)


def test_a_hint_that_was_not_filled_in_can_not_be_read() -> None:
    with pytest.raises(InvalidArgumentError, match=r"AutoShardPolicy\.HINT"):
        list(Dataset.range(8).shard(SHARD_HINT, SHARD_HINT))


@pytest.mark.parametrize(("workers", "replicas", "batch"), [(1, 3, 4), (2, 2, 7), (3, 2, 12)])
def test_every_example_is_on_one_replica_once(workers: int, replicas: int, batch: int) -> None:
    for size in (0, 1, 13, 24):
        dataset = Dataset.range(size).batch(batch)
        steps = [_steps(dataset, workers, index, replicas) for index in range(workers)]
        assert all(len(step) == replicas for worker in steps for step in worker)
        seen = [value for worker in steps for step in worker for part in step for value in part]
        assert sorted(seen) == list(range(size))


def test_the_global_batch_size_is_found_in_the_plan() -> None:
    batches = Dataset.range(10).batch(4)
    assert global_batch_size(batches.map(lambda x: x).prefetch(2).repeat().plan) == 4
    assert global_batch_size(Dataset.from_tensors([[1.0], [2.0]]).plan) == 2
    assert global_batch_size(batches.concatenate(Dataset.range(3).batch(3)).plan) is None
    assert global_batch_size(Dataset.from_generator(lambda: [[1, 2]]).plan) is None
    assert global_batch_size(batches.rebatch([2, 3]).plan) is None
