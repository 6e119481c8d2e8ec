"""A dataset's iterator from outside is refused where a compiled function would read it once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.data import Dataset
from distlab.errors import IteratorContextError


@pytest.fixture
def strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture
def eagerly() -> Iterator[None]:
    dl.run_functions_eagerly(True)
    yield
    dl.run_functions_eagerly(False)


def read(iterator: Any, strategy: dl.MirroredStrategy) -> None:
    strategy.run(lambda: jnp.asarray(next(iterator)))


def read_under_jit(iterator: Any, _: dl.MirroredStrategy) -> None:
    jax.jit(lambda: jnp.asarray(next(iterator)))()


@pytest.mark.parametrize("reading", [read, read_under_jit])
def test_it_is_refused_and_has_lost_no_element(reading: Any, strategy: dl.MirroredStrategy) -> None:
    iterator = iter(Dataset.range(3))
    with pytest.raises(IteratorContextError, match=r"args=\(next\(iterator\),\)"):
        reading(iterator, strategy)
    assert list(iterator) == [0, 1, 2]


def test_an_iterator_that_the_function_makes_is_read(strategy: dl.MirroredStrategy) -> None:
    dataset = Dataset.range(3)
    for _ in range(2):
        total = strategy.run(lambda: jnp.float32(sum(int(x) for x in dataset)))
        assert strategy.experimental_local_results(total)[0] == 3


@pytest.mark.usefixtures("eagerly")
def test_functions_that_run_as_ordinary_python_read_on(strategy: dl.MirroredStrategy) -> None:
    iterator = iter(Dataset.range(5))
    first = strategy.run(lambda: jnp.asarray(next(iterator)))
    second = strategy.run(lambda: jnp.asarray(next(iterator)))
    assert [int(x) for pair in (first, second) for x in pair.values] == [0, 1, 2, 3]
