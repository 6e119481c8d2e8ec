"""A user's own algorithm is checked as it is written, and what it returns as it is used."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import UnsupportedError, ValueShapeError
from distlab.events import Reduction
from distlab.recording import RingRecorder


class Plain(dl.CrossDeviceOps):
    """It adds up, and has no name."""

    def sum_rows(self, stacked: jax.Array, mesh: Any) -> Any:
        return stacked.sum(0)

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> Any:
        return list(jax.lax.psum(values, "replica"))


class OnHost(Plain):
    def sum_rows(self, stacked: jax.Array, mesh: Any) -> Any:
        return np.asarray(stacked).sum(0)


class Rounded(Plain):
    def sum_rows(self, stacked: jax.Array, mesh: Any) -> Any:
        return stacked.sum(0).astype(jnp.int32)

    def sum_in_program(self, values: list[jax.Array], replicas: int) -> Any:
        return [total.astype(jnp.int32) for total in jax.lax.psum(values, "replica")]


def made(ops: dl.CrossDeviceOps) -> tuple[dl.Strategy, Any]:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=ops)
    values = strategy.experimental_distribute_values_from_function(
        lambda context: np.float32(1.5 + context.replica_id_in_sync_group)
    )
    return strategy, values


def test_an_algorithm_without_a_name_is_called_by_its_class(recorder: RingRecorder) -> None:
    strategy, values = made(Plain())
    assert float(strategy.reduce("SUM", values, axis=None)) == 4.0
    reductions = [e for e in recorder.ring.since(0).events if isinstance(e, Reduction)]
    assert [one.algorithm for one in reductions] == ["Plain"]


@pytest.mark.parametrize("ops", [OnHost(), Rounded()])
def test_sums_that_are_no_arrays_of_the_values_dtype_are_refused_at_once(
    ops: dl.CrossDeviceOps,
) -> None:
    strategy, values = made(ops)
    with pytest.raises(ValueShapeError, match=r"JAX's arrays float32\[\], got"):
        strategy.reduce("SUM", values, axis=None)
    other, one = made(Plain())
    for _ in range(20):  # what was refused is not waited for later
        total = other.run(lambda x: dl.get_replica_context().all_reduce("SUM", x), args=(one,))
    assert [float(copy) for copy in total.values] == [4.0, 4.0]


def test_sums_of_another_dtype_in_a_step_are_refused() -> None:
    strategy, values = made(Rounded())
    with pytest.raises(ValueShapeError, match="JAX's arrays"):
        strategy.run(lambda x: dl.get_replica_context().all_reduce("SUM", x), args=(values,))


def test_methods_of_tensorflows_algorithms_are_refused_as_the_class_is_made() -> None:
    with pytest.raises(UnsupportedError, match="defines broadcast_implementation, reduce_impl"):
        type(
            "Ported",
            (dl.CrossDeviceOps,),
            {"reduce_implementation": None, "broadcast_implementation": None},
        )


@pytest.mark.parametrize("base", [dl.ReductionToOneDevice, dl.NcclAllReduce])
def test_algorithms_of_distlab_can_not_be_derived_from(base: type) -> None:
    with pytest.raises(UnsupportedError, match=f"derives from {base.__name__}"):
        type("Derived", (base,), {"sum_rows": None})


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("base", [Exception, TypeError, ValueError, NameError, AttributeError])
def test_an_error_whose_text_can_not_be_read_is_raised_as_it_is(
    recorder: RingRecorder, base: type[Exception], eagerly: bool
) -> None:
    strategy, _ = made(Plain())
    unspeakable = type("UnspeakableError", (UnspeakableError, base), {})

    def fail() -> None:
        raise unspeakable

    with pytest.raises(unspeakable):
        strategy.run(fail, options=dl.RunOptions(run_eagerly=eagerly))
