"""Global batches divided over the replicas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    NotBatchedError,
)
from tests.listening import listening


def _strategy(replicas: int) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _steps(replicas: int, dataset: object) -> list[list[Any]]:
    strategy = _strategy(replicas)
    return [
        [np.asarray(v).tolist() for v in strategy.experimental_local_results(x)]
        for x in strategy.experimental_distribute_dataset(dataset)
    ]


def _range(n: int) -> dl.data.Dataset:
    return dl.data.Dataset.range(n)


def test_any_iterable_of_batches_can_be_distributed() -> None:
    assert _steps(2, [np.arange(3), np.arange(2)]) == [[[0, 1], [2]], [[0], [1]]]
    with pytest.raises(NotBatchedError):
        _steps(2, [1, 2])


def test_each_batch_is_an_event_with_sizes_sources_and_bytes() -> None:
    strategy = _strategy(4)
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    data = dl.data.Dataset.from_tensor_slices(rows).shuffle(10, seed=3).batch(8)
    with listening() as heard:
        seen = [
            [np.asarray(v) for v in strategy.experimental_local_results(x)]
            for x in strategy.experimental_distribute_dataset(data)
        ]
    full, partial = heard.of(events.Sharding)
    assert (full.sizes, partial.sizes) == ([2, 2, 2, 2], [1, 1, 0, 0])
    assert (full.nominal, partial.nominal) == (2, 2)
    assert (full.bytes, partial.bytes) == (64, 16)
    assert (full.batch, partial.batch, full.epoch) == (0, 1, 0)
    for event, parts in zip((full, partial), seen, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), rows[event.positions])
    assert all(event.wait_ns > 0 and event.transfer_ns > 0 for event in (full, partial))


def test_examples_are_previewed_once_with_their_labels() -> None:
    strategy = _strategy(2)
    images = np.zeros((6, 8, 8), np.float32)
    images[:, 0, 0] = 16
    data = dl.data.Dataset.from_tensor_slices((images, np.arange(6))).batch(4)
    dataset = strategy.experimental_distribute_dataset(data)
    with listening() as heard:
        list(dataset)
        list(dataset)
    first, second = heard.of(events.Preview)
    assert (first.form, first.shape, first.labels) == ("image", [8, 8], ["0", "1", "2", "3"])
    assert np.frombuffer(second.indices, "<i8").tolist() == [4, 5]
    pixels = np.frombuffer(first.data, np.uint8).reshape(4, 8, 8)
    assert pixels[:, 0, 0].tolist() == [255] * 4
    assert int(pixels.sum()) == 4 * 255


def test_reduce_folds_the_elements_of_an_epoch() -> None:
    strategy = _strategy(2)
    dataset = strategy.experimental_distribute_dataset(_range(5).batch(4))

    def add(total: float, batch: object) -> float:
        return total + float(strategy.reduce("SUM", batch, axis=0))

    assert dataset.reduce(100.0, add) == 110.0
    assert dataset.reduce(0.0, add) == 10.0
    with pytest.raises(ArgumentTypeError, match="must be a function of the value so far"):
        dataset.reduce(0.0, 3)


def test_reduce_of_endless_data_is_refused() -> None:
    strategy = _strategy(2)
    endless = _range(4).batch(2).repeat()
    for dataset in (
        strategy.experimental_distribute_dataset(endless),
        strategy.distribute_datasets_from_function(lambda _: endless),
    ):
        with pytest.raises(InvalidArgumentError, match="reduce needs a dataset with an end"):
            dataset.reduce(0, lambda total, _: total + 1)
