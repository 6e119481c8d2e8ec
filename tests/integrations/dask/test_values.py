"""Parameter servers change their values as JAX does in a step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from distlab.integrations.dask.values import APPLY, Values, as_text, packed, unpacked
from distlab.variables.operations import COMBINE

DTYPES = ("float32", "int32", "bfloat16", "uint8", "bool")


def test_servers_know_every_operation() -> None:
    assert set(APPLY) == set(COMBINE)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_an_operation_gives_what_it_gives_in_a_step(dtype: str) -> None:
    for verb in COMBINE:
        value, rows = np.array([[4, -5], [3, 2], [-1, 5]], dtype), np.array([[2, -3]] * 2, dtype)
        indices = np.array([2, 0] if verb == "scatter_update" else [2, 2], np.int32)
        operands = (indices, rows) if verb.startswith("scatter") else (value[::-1].copy(),)
        expected = COMBINE[verb](jnp.asarray(value), *map(jnp.asarray, operands))
        APPLY[verb](value, *operands)
        np.testing.assert_allclose(value, np.asarray(expected), rtol=1e-6)


def test_rows_outside_of_a_value_are_ignored() -> None:
    value = np.zeros((2, 1), np.float32)
    APPLY["scatter_add"](value, np.array([0, 7, -1]), np.ones((3, 1), np.float32))
    assert value.tolist() == [[1.0], [1.0]]


def test_packed_arrays_are_found_again() -> None:
    arrays = [
        np.asarray(jnp.arange(int(np.prod(shape))).reshape(shape).astype(dtype)).T
        for dtype in DTYPES
        for shape in [(), (2, 3), (0, 2)]
    ]
    again = unpacked(*packed(arrays))
    assert [(a.shape, a.dtype, a.tolist()) for a in again] == [
        (a.shape, a.dtype, a.tolist()) for a in arrays
    ]


def test_values_are_kept_until_they_are_forgotten() -> None:
    values = Values()
    given = np.ones(2)
    number = values.make(*packed([given]))
    given += 1
    changes = as_text(((number, "assign_add", 1), (number, "assign_sub", 1)))
    operands = packed([np.ones(2), np.zeros(2)])
    assert values.update(changes, *operands) == [0, 1]
    versions, *value = values.read(as_text((number,)))
    assert versions == [2]
    assert unpacked(*value)[0].tolist() == [2.0, 2.0]
    values.forget(number)
    with pytest.raises(KeyError):
        values.read(as_text((number,)))
