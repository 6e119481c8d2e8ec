"""Many arrays that move to a device and back together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab.variables import packed_transfers

ONE = jax.sharding.SingleDeviceSharding(jax.devices()[0])
KINDS = st.tuples(
    st.sampled_from([(), (0,), (1,), (3,), (2, 3)]),
    st.sampled_from(["float32", "int32", "bool", "bfloat16"]),
)


@settings(deadline=None, max_examples=15)
@given(st.lists(KINDS, max_size=12))
def test_arrays_arrive_as_they_were(kinds: list[tuple[tuple[int, ...], str]]) -> None:
    arrays = [
        np.asarray(jnp.arange(np.prod(shape, dtype=int)).reshape(shape) + number, jnp.dtype(dtype))
        for number, (shape, dtype) in enumerate(kinds)
    ]
    placed = packed_transfers.to_device(arrays, ONE)
    for array, one, back in zip(arrays, placed, packed_transfers.to_host(placed), strict=True):
        assert isinstance(one, jax.Array)
        assert (one.shape, one.dtype) == (array.shape, array.dtype) == (back.shape, back.dtype)
        assert np.array_equal(back, array)


@pytest.mark.parametrize("check", ["jax_debug_nans", "jax_debug_infs"])
def test_values_may_be_nan_where_jax_looks_for_nan(check: str) -> None:
    arrays = [np.array([np.nan, np.inf], np.float32)] * 10
    jax.config.update(check, True)
    try:
        placed = packed_transfers.to_device(arrays, ONE)
        assert all(np.isnan(one[0]) for one in packed_transfers.to_host(placed))
    finally:
        jax.config.update(check, False)
