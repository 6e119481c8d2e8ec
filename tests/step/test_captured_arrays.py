"""Arrays that a replica function uses from outside: whole ones are constants, others refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import distlab as dl
from distlab.errors import ShardingError


@pytest.fixture
def strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(4)])


def _mesh(first: int, explicit: bool) -> Mesh:
    devices = jax.devices()[first:]
    if explicit:
        return jax.make_mesh((len(devices),), ("x",), devices=devices)
    return Mesh(np.array(devices), ("x",))


@pytest.mark.parametrize(("first", "explicit"), [(0, False), (4, False), (0, True)])
def test_copies_on_any_devices_are_used_whole(
    strategy: dl.MirroredStrategy, first: int, explicit: bool
) -> None:
    whole = jax.device_put(jnp.arange(3.0), NamedSharding(_mesh(first, explicit), PartitionSpec()))
    one = jax.device_put(jnp.arange(3.0), jax.devices()[7])
    ids = strategy.experimental_distribute_values_from_function(
        lambda c: float(c.replica_id_in_sync_group)
    )
    results = strategy.run(lambda x: whole * x + one, args=(ids,))
    for replica, result in enumerate(results.values):
        assert result.tolist() == [0.0, replica + 1.0, 2.0 * (replica + 1)]


def test_copies_are_used_whole_in_a_ragged_step(strategy: dl.MirroredStrategy) -> None:
    whole = jax.device_put(jnp.float32(2.0), strategy.mesh.whole)
    ragged = strategy.experimental_distribute_values_from_function(
        lambda c: jnp.ones(c.replica_id_in_sync_group + 1)
    )

    def step(x: jax.Array) -> jax.Array:
        return dl.get_replica_context().all_reduce("SUM", (x * whole).sum()) * whole

    results = strategy.run(step, args=(ragged,))
    assert [float(result) for result in results.values] == [40.0] * 4


def test_parts_and_inputs_of_derivatives_on_other_meshes_are_refused(
    strategy: dl.MirroredStrategy,
) -> None:
    table = jax.device_put(jnp.arange(8.0), NamedSharding(_mesh(0, False), PartitionSpec("x")))
    whole = jax.device_put(jnp.arange(3.0), NamedSharding(_mesh(2, False), PartitionSpec()))

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.square(jnp.tanh(w * x)).sum()

    with pytest.raises(ShardingError, match=r"uses an array float32\[8\] from .* 8 dev.*args="):
        strategy.run(lambda x: table * x, args=(2.0,))
    with pytest.raises(
        ShardingError, match=r"uses an array float32\[3\] from .* 6 .*numpy.asarray"
    ):
        strategy.run(lambda x: jax.grad(loss)(whole, x), args=(2.0,))
    found = strategy.run(jax.grad(loss), args=(np.asarray(whole), 2.0))
    np.testing.assert_allclose(found.values[3], jax.grad(loss)(jnp.arange(3.0), 2.0), rtol=1e-6)


def test_weights_on_the_devices_are_a_derivatives_closure(strategy: dl.MirroredStrategy) -> None:
    x = jnp.arange(1.0, 4.0)

    def slope(at: jax.Array) -> jax.Array:
        loss = jax.checkpoint(lambda at: jnp.square(jnp.tanh(at * x) - 1).sum())
        return jax.lax.scan(lambda w, _: (w - 0.1 * jax.grad(loss)(w), None), at, length=2)[0]

    w = jax.device_put(jnp.ones(3), strategy.mesh.whole)
    found = strategy.run(lambda: dl.get_replica_context().all_reduce("MEAN", slope(w)))
    np.testing.assert_allclose(found.values[1], slope(jnp.ones(3)), rtol=1e-5)
