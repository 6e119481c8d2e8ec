"""Whole numbers of 64 bits reach the devices as they are, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError, DistlabError, ValueShapeError

WIDE: Final = np.array([7, 2**32 + 7])
FITTING: Final = np.array([7, 2**31 - 1])


def strategies() -> list[dl.Strategy]:
    return [dl.MirroredStrategy(["CPU:0", "CPU:1"]), dl.OneDeviceStrategy("CPU:0")]


def same(x: Any) -> Any:
    return x


def dataset(strategy: dl.Strategy, numbers: np.ndarray) -> Any:
    batches = dl.data.Dataset.from_tensors(numbers)
    return next(iter(strategy.experimental_distribute_dataset(batches)))


def variable(strategy: dl.Strategy, numbers: np.ndarray) -> Any:
    with strategy.scope():
        return dl.Variable(numbers).value()


def assigned(strategy: dl.Strategy, numbers: np.ndarray) -> Any:
    with strategy.scope():
        kept = dl.Variable(np.zeros_like(numbers))
    try:
        kept.assign(numbers)
    except DistlabError:
        assert kept.numpy().tolist() == [0, 0]
        raise
    return kept.value()


VERBS: Final[dict[str, Callable[[dl.Strategy, np.ndarray], Any]]] = {
    "dataset": dataset,
    "argument": lambda strategy, numbers: strategy.run(same, args=(numbers,)),
    "result": lambda strategy, numbers: strategy.run(lambda: numbers),
    "per-replica values": lambda strategy, numbers: strategy.run(
        same, args=(strategy.experimental_distribute_values_from_function(lambda _: numbers),)
    ),
    "replicate": lambda strategy, numbers: strategy.replicate(numbers),
    "variable": variable,
    "assign": assigned,
    "reduce": lambda strategy, numbers: strategy.reduce("MEAN", numbers, axis=None),
}


def test_numbers_that_would_be_cut_are_refused() -> None:
    for verb in VERBS:
        for strategy, dtype in zip(strategies(), ("int64", "uint64"), strict=True):
            told = rf"{dtype} value {2**32 + 7} overflows .*would become 7.*jax_enable_x64"
            with pytest.raises(DistlabError, match=told) as refused:
                VERBS[verb](strategy, WIDE.astype(dtype))
            assert type(refused.value) in {ArgumentValueError, ValueShapeError}


def test_numbers_that_fit_are_the_same() -> None:
    for verb in VERBS:
        for strategy in strategies():
            for numbers in (FITTING, np.zeros((2, 0), np.int64)):
                result = VERBS[verb](strategy, numbers)
                parts = [np.asarray(part) for part in strategy.experimental_local_results(result)]
                if verb == "dataset":
                    np.testing.assert_array_equal(np.concatenate(parts), numbers)
                else:
                    assert all(np.array_equal(part, numbers) for part in parts)


def test_with_64_bits_the_numbers_are_kept() -> None:
    with jax.enable_x64(True):
        strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
        batch = dataset(strategy, WIDE)
        assert [part.tolist() for part in batch.values] == [[7], [2**32 + 7]]
