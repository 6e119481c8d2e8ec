"""Datasets of every verb, divided over replicas and workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import distlab as dl
from distlab.data import AutoShardPolicy, Dataset, Options, TextLineDataset, worker_batches
from distlab.errors import InvalidArgumentError, NotBatchedError, StructureError


def _rows(n: Any) -> Any:
    return np.full(n, n, np.int32)


_PIPELINES: dict[str, Callable[[Path], Dataset]] = {
    "cache in a file": lambda p: Dataset.range(11).batch(4).map(lambda x: x * 2).cache(p / "kept"),
    "padded": lambda _: Dataset.range(11).map(_rows).padded_batch(4),
    "windows": lambda _: (
        Dataset.range(11).window(3, 1, 1, True).flat_map(lambda w: w.batch(3)).batch(4)
    ),
    "take while": lambda _: Dataset.range(11).take_while(lambda x: x < 7).batch(4),
    "sampled batches": lambda _: Dataset.sample_from_datasets(
        [Dataset.range(5).batch(4), Dataset.range(10, 16).batch(4)], seed=1
    ),
    "chosen": lambda _: Dataset.choose_from_datasets(
        [Dataset.range(5), Dataset.range(10, 16)], Dataset.range(2).repeat(5)
    ).batch(4),
    "groups": lambda _: Dataset.range(11).group_by_window(
        lambda x: x % 2, lambda _, w: w.batch(4), window_size=4
    ),
    "buckets": lambda _: (
        Dataset.range(11).map(_rows).bucket_by_sequence_length(len, [3, 6], [4, 3, 2])
    ),
    "rebatched": lambda _: Dataset.range(11).batch(3).rebatch(4),
}


def _arrays(nest: Any) -> list[Any]:
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(nest)]


@pytest.mark.parametrize("make", _PIPELINES.values(), ids=_PIPELINES.keys())
def test_replicas_have_the_rows_of_each_batch(
    make: Callable[[Path], Dataset], tmp_path: Path
) -> None:
    strategy = dl.MirroredStrategy([f"CPU:{i}" for i in range(3)])
    dataset = make(tmp_path)
    expected = [_arrays(batch) for batch in dataset]
    assert expected
    distributed = strategy.experimental_distribute_dataset(dataset)
    assert [_arrays(strategy.gather(batch, axis=0)) for batch in distributed] == expected


def _lines(folder: Path) -> TextLineDataset:
    for name in "abcd":
        (folder / f"{name}.txt").write_text("".join(f"{name * n}\n" for n in range(1, 6)))
    names = Dataset.list_files(str(folder / "*.txt"), shuffle=False)
    return TextLineDataset(names)


def _codes(line: Any) -> Any:
    return np.frombuffer(line, np.uint8)


def test_workers_have_all_examples_of_padded_batches(tmp_path: Path) -> None:
    options = Options()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA
    padded = _lines(tmp_path).map(_codes).padded_batch(4, [8]).with_options(options)
    rows = []
    for worker in range(2):
        for step in worker_batches(padded, 2, worker, replicas_per_worker=2):
            assert len(step) == 2
            rows += [row.tolist() for part in step for row in part]
    assert sorted(rows) == sorted(row.tolist() for batch in padded for row in batch)


def test_batches_of_different_widths_are_not_joined(tmp_path: Path) -> None:
    padded = _lines(tmp_path).map(_codes).padded_batch(3).repeat(2)
    with pytest.raises(InvalidArgumentError, match="Pad all batches to one shape"):
        list(worker_batches(padded, 2, 0, replicas_per_worker=1))


def test_datasets_of_datasets_are_not_distributed() -> None:
    windows = Dataset.range(8).window(4)
    two = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(NotBatchedError, match="batch dimension"):
        two.experimental_distribute_dataset(windows)
    one = dl.MirroredStrategy(["CPU:0"])
    with pytest.raises(StructureError, match="one is a Dataset"):
        next(iter(one.experimental_distribute_dataset(windows)))
