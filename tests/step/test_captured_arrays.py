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


def test_eager_copies_on_all_devices_must_be_arguments(
    strategy: dl.MirroredStrategy,
) -> None:
    whole = jax.device_put(jnp.arange(3.0), strategy.mesh.whole)
    eagerly = dl.RunOptions(run_eagerly=True)

    def step(whole: jax.Array) -> jax.Array:
        return dl.get_replica_context().all_reduce("SUM", 1.0) * whole

    with pytest.raises(ShardingError, match=r"whole, an array float32\[3\], lies on 4 .* args="):
        strategy.run(
            lambda: dl.get_replica_context().all_reduce("SUM", 1.0) * whole, options=eagerly
        )
    results = strategy.run(step, args=(whole,), options=eagerly)
    assert results.values[3].tolist() == [0.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("first", "explicit", "eagerly"), [(0, False, False), (4, False, True), (0, True, False)]
)
def test_parts_are_refused_with_the_name_and_the_remedy(
    strategy: dl.MirroredStrategy, first: int, explicit: bool, eagerly: bool
) -> None:
    mesh = _mesh(first, explicit)
    table = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("x")))
    options = dl.RunOptions(run_eagerly=eagerly)
    with pytest.raises(
        ShardingError, match=r"table, an array float32\[8\], is divided over .*whole"
    ):
        strategy.run(lambda x: table * x, args=(2.0,), options=options)


def test_parts_are_refused_where_replicas_have_different_shapes() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = dl.data.Dataset.range(3).batch(4)
    (batch,) = strategy.experimental_distribute_dataset(dataset)
    sharding = NamedSharding(strategy.mesh.whole.mesh, PartitionSpec("replica"))
    table = jax.device_put(jnp.arange(4.0), sharding)
    with pytest.raises(ShardingError, match=r"table, an array float32\[4\], is divided over 2 .*"):
        strategy.run(lambda x: x.sum() + table.sum(), args=(batch,))


def test_copies_on_another_mesh_are_not_differentiated_over(
    strategy: dl.MirroredStrategy,
) -> None:
    whole = jax.device_put(jnp.arange(3.0), NamedSharding(_mesh(2, False), PartitionSpec()))

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.square(jnp.tanh(w * x)).sum()

    with pytest.raises(
        ShardingError, match=r"whole, an array float32\[3\], lies on a mesh of 6 .*numpy.asarray"
    ):
        strategy.run(lambda x: jax.grad(loss)(whole, x), args=(2.0,))
    found = strategy.run(jax.grad(loss), args=(np.asarray(whole), 2.0))
    np.testing.assert_allclose(found.values[3], jax.grad(loss)(jnp.arange(3.0), 2.0), rtol=1e-6)


def test_an_inseparable_step_refuses_a_captured_array() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    whole = jax.device_put(jnp.arange(3.0), strategy.mesh.whole)
    ragged = strategy.experimental_distribute_values_from_function(
        lambda c: jnp.ones(c.replica_id_in_sync_group + 1)
    )

    @jax.custom_jvp
    def numbered(x: jax.Array) -> jax.Array:
        return x * jax.lax.axis_index("replica")

    numbered.defjvp(lambda at, tangents: (numbered(*at), tangents[0]))

    def step(x: jax.Array) -> jax.Array:
        return jax.grad(lambda w: (numbered(x) * w[0]).sum() + w.sum())(whole)

    with pytest.raises(ShardingError, match=r"whole, .* args="):
        strategy.run(step, args=(ragged,))
