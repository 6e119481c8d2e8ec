"""Partitioners divide as those of TensorFlow do."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.errors import ArgumentValueError
from distlab.experimental.partitioners import (
    FixedShardsPartitioner,
    MaxSizePartitioner,
    MinSizePartitioner,
)
from distlab.strategies import dealing


@given(st.integers(1, 500), st.integers(1, 40))
@settings(max_examples=50, deadline=None)
def test_parts_have_all_rows_and_the_first_ones_have_one_more(rows: int, parts: int) -> None:
    parts = min(rows, parts)
    sizes = dealing.sizes(rows, parts)
    assert len(sizes) == parts
    assert sum(sizes) == rows
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] in (0, 1)


def test_partitioners_return_the_parts_along_each_axis() -> None:
    for partitioner, shape, dtype, counts in [
        # The examples of TensorFlow's documentation
        (FixedShardsPartitioner(num_shards=2), (10, 3), "float32", [2, 1]),
        (MinSizePartitioner(min_shard_bytes=4, max_shards=2), (6, 1), "float32", [2, 1]),
        (MinSizePartitioner(min_shard_bytes=4, max_shards=10), (6, 1), "float32", [6, 1]),
        (MaxSizePartitioner(max_shard_bytes=4), (6, 1), "float32", [6, 1]),
        (MaxSizePartitioner(max_shard_bytes=4, max_shards=2), (6, 1), "float32", [2, 1]),
        (MaxSizePartitioner(max_shard_bytes=1024), (6, 1), "float32", [1, 1]),
        # Defaults
        (MinSizePartitioner(), (1 << 20, 4), "float32", [1, 1]),
        (MinSizePartitioner(max_shards=8), (1 << 16, 4), "float32", [4, 1]),
        (MaxSizePartitioner(1 << 18, max_shards=0), (1 << 16, 4), "float32", [4, 1]),
        (MaxSizePartitioner(1e6), (1 << 18,), jnp.float32, [2]),
        # Other dtypes
        (MaxSizePartitioner(8), (8,), jnp.bfloat16, [2]),
        (MaxSizePartitioner(32), (8,), str, [4]),
        (MaxSizePartitioner(32, bytes_per_string=32), (8,), str, [8]),
        (MinSizePartitioner(32, max_shards=8, bytes_per_string=8), (8,), str, [2]),
        # No elements
        (MaxSizePartitioner(8), (8, 0), "float32", [1, 1]),
        (MaxSizePartitioner(8), (0, 8), "float32", [0, 1]),
    ]:
        assert partitioner(shape, dtype) == counts


def test_another_axis_can_be_asked_for() -> None:
    for partitioner in (
        FixedShardsPartitioner(3),
        MinSizePartitioner(4, max_shards=3),
        MaxSizePartitioner(16),
    ):
        assert partitioner((2, 6), "float32", axis=1) == [1, 3]
        assert partitioner((2, 6), "float32", axis=-1) == [1, 3]


def test_what_tensorflow_refuses_is_a_value_error() -> None:
    wrong: list[Any] = [
        (lambda: FixedShardsPartitioner(0), "num_shards must be at least 1 and finite, got 0"),
        (lambda: MinSizePartitioner(0), "min_shard_bytes must be at least 1 .*got 0"),
        (lambda: MinSizePartitioner(max_shards=-1), "max_shards must be at least 1 .*got -1"),
        (lambda: MaxSizePartitioner(8, max_shards=-1), "max_shards must be at least 0"),
        (lambda: MaxSizePartitioner(8, bytes_per_string=0.5), "bytes_per_string.*got 0.5"),
        (lambda: MaxSizePartitioner(float("nan")), "max_shard_bytes.*finite, got nan"),
    ]
    for make, says in wrong:
        with pytest.raises(ArgumentValueError, match=says) as told:
            make()
        assert isinstance(told.value, ValueError)
