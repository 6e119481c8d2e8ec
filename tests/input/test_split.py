"""The division of a global batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlab.input.batches import divided_sizes


@pytest.mark.parametrize(
    ("batch", "replicas", "expected"),
    [
        (512, 8, [64] * 8),
        (133, 8, [17] * 7 + [14]),
        (5, 8, [1] * 5 + [0] * 3),
        (4, 3, [2, 2, 0]),
        (9, 1, [9]),
        (0, 3, [0, 0, 0]),
    ],
)
def test_sizes_are_those_of_tf_distribute(batch: int, replicas: int, expected: list[int]) -> None:
    assert divided_sizes(batch, replicas) == expected


@given(batch=st.integers(0, 10_000), replicas=st.integers(1, 64))
def test_every_example_is_given_once_and_first_replicas_get_most(batch: int, replicas: int) -> None:
    sizes = divided_sizes(batch, replicas)
    assert sum(sizes) == batch
    assert len(sizes) == replicas
    assert sizes == sorted(sizes, reverse=True)
    assert all(size == sizes[0] for size in sizes[: batch // max(1, sizes[0])])
