"""A mirrored value has one number for all replicas, which a program reads as that of an array."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import DonatedError, StructureError


def mirrored(value: Any) -> Any:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    return strategy.run(lambda: dl.Mirrored(jnp.asarray(value)))


def test_its_numbers_are_read_as_those_of_an_array() -> None:
    loss = mirrored(2.5)
    assert (float(loss), int(loss), complex(loss), f"{loss:.2f}") == (2.5, 2, 2.5, "2.50")
    row = np.asarray(mirrored([1, 2, 3]))
    assert (str(row.dtype), row.tolist(), int(np.max(row))) == ("int32", [1, 2, 3], 3)
    assert np.asarray(loss, np.float64).dtype == np.float64


def test_the_truth_of_a_flag_or_a_count_is_that_of_its_number() -> None:
    for value in [True, False, 0, 3]:
        assert bool(mirrored(value)) == bool(value)


def test_it_is_no_array_in_what_computes() -> None:
    loss = mirrored(2.5)
    for use in (lambda: loss + 1, lambda: jnp.asarray(loss), lambda: loss == 2.5, lambda: loss[0]):
        with pytest.raises(StructureError, match=r"float\(value\) or numpy.asarray\(value\)"):
            use()


def test_a_deleted_one_raises() -> None:
    loss = mirrored(2.5)
    loss.array.delete()
    with pytest.raises(DonatedError):
        float(loss)


def test_array_attributes_of_mirrored_values_name_the_remedy() -> None:
    weights = mirrored([[1.0, 2.0]])
    for name in ("T", "mean", "reshape", "astype", "at"):
        with pytest.raises(AttributeError, match=rf"no '{name}', as an array .*numpy.asarray\(val"):
            getattr(weights, name)
    with pytest.raises(AttributeError, match=r"^'Mirrored' object has no attribute 'weights'$"):
        _ = weights.weights
    losses = dl.MirroredStrategy(["CPU:0", "CPU:1"]).run(lambda: jnp.ones(3))
    with pytest.raises(AttributeError, match=r"has a value for each replica, .*strategy.reduce"):
        losses.sum()
    assert np.asarray(copy.deepcopy(weights)).tolist() == [[1.0, 2.0]]
