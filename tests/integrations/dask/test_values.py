"""Parameter servers change their values as JAX does in a step."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlab.integrations.dask.values import APPLY, Values, as_text, packed, unpacked
from distlab.variables.operations import COMBINE

DTYPES = ("float32", "int32", "bfloat16", "uint8", "bool")


def test_servers_know_every_operation() -> None:
    assert set(APPLY) == set(COMBINE)


@given(
    verb=st.sampled_from(sorted(COMBINE)),
    dtype=st.sampled_from(["float32", "int32"]),
    rows=st.integers(1, 4),
    data=st.data(),
)
def test_an_operation_gives_what_it_gives_in_a_step(
    verb: str, dtype: str, rows: int, data: st.DataObject
) -> None:
    def drawn(*shape: int) -> np.ndarray:
        numbers = st.integers(-5, 5).filter(bool)  # division by zero is nobody's promise
        count = int(np.prod(shape))
        return np.array(
            data.draw(st.lists(numbers, min_size=count, max_size=count)), dtype
        ).reshape(shape)

    value = drawn(rows, 2)
    operands: tuple[np.ndarray, ...]
    if verb.startswith("scatter"):
        count = data.draw(st.integers(0, rows))
        unique = verb == "scatter_update"  # of equal indices any may be the last
        indices = st.lists(st.integers(0, rows - 1), min_size=count, max_size=count, unique=unique)
        operands = (np.array(data.draw(indices), np.int32), drawn(count, 2))
    else:
        operands = (drawn(rows, 2),)
    expected = COMBINE[verb](jnp.asarray(value), *map(jnp.asarray, operands))
    APPLY[verb](value, *operands)
    np.testing.assert_allclose(value, np.asarray(expected), rtol=1e-6)


def test_rows_outside_of_a_value_are_ignored() -> None:
    value = np.zeros((2, 1), np.float32)
    APPLY["scatter_add"](value, np.array([0, 7, -1]), np.ones((3, 1), np.float32))
    assert value.tolist() == [[1.0], [1.0]]


@given(
    st.lists(
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 3), max_size=3)), max_size=5
    )
)
def test_packed_arrays_are_found_again(kinds: list[tuple[str, list[int]]]) -> None:
    arrays = [
        np.asarray(jnp.arange(int(np.prod(shape))).reshape(shape).astype(dtype)).T
        for dtype, shape in kinds
    ]
    described, buffer = packed(arrays)
    again = unpacked(described, buffer)
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
