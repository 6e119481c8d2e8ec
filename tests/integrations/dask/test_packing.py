"""Arrays in one buffer, and what describes them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from distlab.integrations.dask.packing import as_text, from_text, packed, unpacked


def test_arrays_of_all_kinds_are_unpacked_as_they_were() -> None:
    arrays: list[np.ndarray] = [
        np.array(1.5, np.float32),
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.zeros((0, 4), np.float64),
        np.asarray(jnp.ones(3, jnp.bfloat16)),
        np.array([True, False]),
        np.arange(6.0).reshape(2, 3).T,
    ]
    described, buffer = packed(arrays)
    for array, other in zip(arrays, unpacked(described, buffer), strict=True):
        assert (array.shape, array.dtype) == (other.shape, other.dtype)
        assert np.array_equal(array, other)
    assert unpacked(*packed([])) == []


def test_rows_of_numbers_and_words_travel_as_text() -> None:
    rows = ((3, "assign_add", 1), (4, "scatter_add", 2))
    assert [tuple(row) for row in from_text(as_text(rows))] == list(rows)
    assert from_text(as_text((5, 6))) == [5, 6]
