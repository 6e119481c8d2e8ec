"""Each algorithm returns the same sums, moves data in its own way, and is recorded by its name."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.errors import DeviceError, OptionError
from distlab.values.distributed import stack
from tests.listening import listening

ALGORITHMS = [
    (dl.ReductionToOneDevice(), "to_one_device", "collective-permute"),
    (dl.HierarchicalCopyAllReduce(), "hierarchical_copy", "collective-permute"),
    (dl.HierarchicalCopyAllReduce(num_packs=3), "hierarchical_copy", "collective-permute"),
    (dl.NcclAllReduce(), "all_reduce", "all-reduce"),
    (None, "to_one_device", "all-reduce"),
]


def _values(replicas: int) -> list[np.ndarray]:
    return [np.arange(4, dtype=np.float32) * (i + 1) - i for i in range(replicas)]


def _total(v: jax.Array) -> Any:
    return dl.get_replica_context().all_reduce("SUM", v)


@pytest.mark.parametrize(("ops", "algorithm", "collective"), ALGORITHMS)
def test_the_chosen_algorithm_adds_up_and_is_recorded(
    ops: dl.CrossDeviceOps | None, algorithm: str, collective: str
) -> None:
    replicas = 5
    s = dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)], cross_device_ops=ops)
    x = stack(_values(replicas), s.mesh)
    expected = np.sum(_values(replicas), axis=0)
    with listening() as heard:
        total = s.run(_total, args=(x,))
        reduced = s.reduce("SUM", x, axis=None)
        mean = s.reduce("MEAN", x, axis=None)
    for copy in s.experimental_local_results(total):
        np.testing.assert_allclose(copy, expected)
    np.testing.assert_allclose(reduced, expected)
    np.testing.assert_allclose(mean, expected / replicas)
    assert {r.algorithm for r in heard.of(events.Reduction)} == {algorithm}
    (program,) = heard.of(events.Compile)
    assert {c.kind for c in program.collectives} == {collective}


@pytest.mark.parametrize(("ops", "_algorithm", "_collective"), ALGORITHMS)
def test_gradients_go_through_every_algorithm(
    ops: dl.CrossDeviceOps | None, _algorithm: str, _collective: str
) -> None:
    s = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"], cross_device_ops=ops)
    x = stack([jnp.float32(n) for n in (1, 2, 6)], s.mesh)
    grads = s.run(jax.grad(lambda u: _total(u * u)), args=(x,))
    assert [float(g) for g in grads.values] == [6.0, 12.0, 36.0]


def test_large_values_are_added_up_without_being_stacked() -> None:
    s = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=dl.ReductionToOneDevice("CPU:3"))
    x = stack([np.full(1 << 19, i, np.float32) for i in (1, 2)], s.mesh)
    total = s.reduce("SUM", x, axis=None)
    assert float(total.min()) == float(total.max()) == 3.0
    assert next(iter(total.devices())) == jax.devices()[3]


def test_an_accumulation_function_is_used() -> None:
    def largest(values: list[jax.Array]) -> jax.Array:
        return jnp.max(jnp.stack(values), axis=0)

    ops = dl.ReductionToOneDevice(accumulation_fn=largest)
    s = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"], cross_device_ops=ops)
    x = stack([jnp.float32(n) for n in (1, 7, 3)], s.mesh)
    assert float(s.reduce("SUM", x, axis=None)) == 7.0
    assert [float(v) for v in s.run(_total, args=(x,)).values] == [7.0] * 3
    assert float(jax.jit(lambda v: s.reduce("SUM", v, axis=None))(x)) == 7.0


def test_wrong_options_are_refused() -> None:
    with pytest.raises(OptionError, match="num_packs"):
        dl.HierarchicalCopyAllReduce(num_packs=-1)
    with pytest.raises(OptionError, match="accumulation_fn"):
        dl.ReductionToOneDevice(accumulation_fn=3)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="no device CPU:99"):
        dl.ReductionToOneDevice("CPU:99")
