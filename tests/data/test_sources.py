"""Sources in arrays: what elements are, and who may write them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from distlab.data import Dataset
from distlab.errors import StructureError, ValueShapeError


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([1, 2], "int32"),
        ([1.0, 2.0], "float32"),
        ([True, False], "bool"),
        ([[1, 2.5]], "float32"),
        ([], "float32"),
        (np.array([1, 2]), "int64"),
        (np.array([1.0]), "float64"),
        ([np.float64(1.0)], "float64"),
        ([np.arange(2), np.arange(2)], "int64"),
        (np.zeros((2, 2), np.float16), "float16"),
        (jnp.zeros(2, jnp.bfloat16), "bfloat16"),
        (["a", "bc"], "object"),
    ],
)
def test_dtypes_are_those_of_tf_data(given: Any, dtype: str) -> None:
    assert Dataset.from_tensor_slices(given).element_spec.dtype.name == dtype


def test_strings_keep_their_zero_bytes() -> None:
    given = [b"\0", b"a\0\0", "b\0"]
    assert list(Dataset.from_tensor_slices(given)) == [b"\0", b"a\0\0", b"b\0"]
    (nested,) = Dataset.from_tensor_slices([[b"a\0", b"\0"], [b"", b"c"]]).batch(2)
    assert nested.tolist() == [[b"a\0", b"\0"], [b"", b"c"]]
    (pair,) = Dataset.from_tensors(("x\0", [b"y\0"])).map(lambda x, y: (y, x))
    assert (pair[0].tolist(), pair[1]) == ([b"y\0"], b"x\0")


def test_later_writes_do_not_reach_the_dataset() -> None:
    rows = np.arange(4)
    dataset = Dataset.from_tensor_slices(rows).batch(4)
    rows[:] = -1
    assert next(iter(dataset)).tolist() == [0, 1, 2, 3]


def test_read_only_arrays_are_used_without_a_copy() -> None:
    rows = np.arange(4)
    rows.flags.writeable = False
    (batch,) = Dataset.from_tensor_slices(rows).batch(4)
    assert np.shares_memory(batch, rows)


@pytest.mark.parametrize("shuffled", [False, True])
def test_batches_can_not_be_written(shuffled: bool) -> None:
    dataset = Dataset.from_tensor_slices(np.arange(6.0))
    dataset = dataset.shuffle(6, seed=0) if shuffled else dataset
    stacked = dataset.map(lambda x: x + 1).batch(4)
    for batch in (*dataset.batch(4), *stacked, *stacked.rebatch(5)):
        with pytest.raises(ValueError, match="read-only"):
            batch[0] = 1.0


@pytest.mark.parametrize("shuffled", [False, True])
def test_large_batches_go_to_a_device_without_a_copy(shuffled: bool) -> None:
    dataset = Dataset.from_tensor_slices(np.ones((128, 64), np.float32))
    dataset = dataset.shuffle(128, seed=0) if shuffled else dataset
    for batch in dataset.batch(64):
        on_device = jax.device_put(batch, jax.devices()[0])
        assert on_device.unsafe_buffer_pointer() == batch.ctypes.data


def test_donating_a_batch_does_not_write_to_the_dataset() -> None:
    dataset = Dataset.from_tensor_slices(np.ones((128, 64), np.float32)).batch(64)
    overwrite = jax.jit(lambda x: x * 0, donate_argnums=0)
    for batch in dataset:
        overwrite(jax.device_put(batch, jax.devices()[0])).block_until_ready()
    assert all((batch == 1).all() for batch in dataset)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (([1, 2], [1, 2, 3]), r"one length, got \[2, 3\]"),
        (5, "got 5. Use from_tensors"),
        ([[1, 2], [3]], "must be rectangular"),
        ([2**40], "np.int64"),
    ],
)
def test_bad_shapes_are_refused_at_once(tensors: Any, message: str) -> None:
    with pytest.raises(ValueShapeError, match=message):
        Dataset.from_tensor_slices(tensors)


@pytest.mark.parametrize("tensors", [(), {"a": None}, [object()], {"a": {1, 2}}])
def test_things_that_are_no_arrays_are_refused_at_once(tensors: Any) -> None:
    with pytest.raises(StructureError):
        Dataset.from_tensor_slices(tensors)
