"""Helpers for tests of distributed input."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import distlab as dl


def mirrored(replicas: int) -> dl.MirroredStrategy:
    """Returns a strategy over the first CPU devices."""
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def numbers(size: int, batch: int, *, drop: bool = False) -> dl.data.Dataset:
    """Returns the batches of 0, 1, 2, ... as float32."""
    rows = np.arange(size, dtype=np.float32)
    return dl.data.Dataset.from_tensor_slices(rows).batch(batch, drop_remainder=drop)


def local(strategy: dl.Strategy, value: Any) -> list[Any]:
    """Returns each replica's part of an element, as Python numbers."""
    return [np.asarray(part).tolist() for part in strategy.experimental_local_results(value)]


def steps(strategy: dl.Strategy, dataset: Iterable[Any]) -> list[list[Any]]:
    """Returns each replica's part in each step."""
    return [local(strategy, element) for element in dataset]


def with_policy(dataset: dl.data.Dataset, policy: dl.data.AutoShardPolicy) -> dl.data.Dataset:
    """Returns the dataset with a shard policy."""
    options = dl.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def lines(folder: Path, files: int, each: int) -> dl.data.Dataset:
    """Returns the numbers in text files, counted through all of them."""
    names = []
    for i in range(files):
        path = folder / f"part{i}.txt"
        path.write_text("".join(f"{i * each + j}\n" for j in range(each)))
        names.append(str(path))
    return dl.data.TextLineDataset(names).map(lambda line: np.float32(line.decode()))
