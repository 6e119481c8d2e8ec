"""shuffle: what a permutation, a window, a seed and a pass are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from distlab.data import Dataset


def _order(dataset: Dataset) -> list[int]:
    return [int(np.ravel(value)[0]) for value in dataset]


def _plain(size: int) -> Dataset:
    return Dataset.range(size)


def _mapped(size: int) -> Dataset:
    return Dataset.range(size).map(lambda x: x)


def _batched(size: int) -> Dataset:
    return Dataset.range(size).batch(1)


kinds = pytest.mark.parametrize("make", [_plain, _mapped, _batched])
"""The three ways shuffle is computed: on chunks, on values, on batches of positions."""


@kinds
@pytest.mark.parametrize("window", [1, 2, 7, 99, 100, 10_000])
def test_every_example_comes_once_and_not_before_its_window(
    make: Callable[[int], Dataset], window: int
) -> None:
    order = _order(make(100).shuffle(window, seed=7))
    assert sorted(order) == list(range(100))
    assert all(value < place + window for place, value in enumerate(order))
    assert (order == list(range(100))) == (window == 1)


@kinds
def test_each_pass_and_each_repetition_has_its_own_order(make: Callable[[int], Dataset]) -> None:
    dataset = make(30).shuffle(10, seed=5)
    first, second = _order(dataset), _order(dataset)
    repeated = _order(dataset.repeat(2))
    assert sorted(second) == sorted(first) == list(range(30))
    assert len({tuple(first), tuple(second), tuple(repeated[:30]), tuple(repeated[30:])}) == 4


@kinds
def test_a_pipeline_made_again_gives_the_same_orders(make: Callable[[int], Dataset]) -> None:
    one, other = make(30).shuffle(30, seed=5).repeat(2), make(30).shuffle(30, seed=5).repeat(2)
    assert [_order(one), _order(one)] == [_order(other), _order(other)]
    assert _order(make(30).shuffle(30, seed=6)) != _order(make(30).shuffle(30, seed=5))


@kinds
def test_without_reshuffling_all_passes_are_the_same(make: Callable[[int], Dataset]) -> None:
    dataset = make(20).shuffle(20, seed=5, reshuffle_each_iteration=False)
    first = _order(dataset)
    assert _order(dataset.repeat(2)) == first + first
    assert first != list(range(20))


@pytest.mark.parametrize("window", [5, 40])
def test_the_order_does_not_depend_on_how_much_is_read_at_a_time(window: int) -> None:
    def order(batch: int) -> list[int]:
        batches = Dataset.range(40).shuffle(window, seed=1).repeat(2).batch(batch)
        return [int(i) for batch in batches for i in batch]

    assert order(1) == order(3) == order(80)


@pytest.mark.parametrize("make", [_plain, _mapped])
def test_a_full_window_makes_every_place_equally_likely(make: Callable[[int], Dataset]) -> None:
    dataset = make(4).shuffle(4, seed=11).repeat(3000)
    orders = np.array(_order(dataset)).reshape(3000, 4)
    for place in range(4):
        counts = np.bincount(orders[:, place], minlength=4)
        # Chi-square with 3 degrees of freedom: 21.1 is exceeded once in 10,000.
        assert ((counts - 750) ** 2 / 750).sum() < 21.1


def test_an_endless_dataset_can_be_shuffled() -> None:
    order = _order(Dataset.range(5).repeat().shuffle(3, seed=1).take(50))
    assert len(order) == 50
    assert set(order) == set(range(5))
