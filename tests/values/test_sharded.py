"""Arrays that the user divided over the replicas' devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import distlab as dl
from distlab.errors import ShardingError

REPLICAS = 8
P = PartitionSpec


def _strategy(replicas: int = REPLICAS) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _mesh(*axes: tuple[str, int], reverse: bool = False) -> Mesh:
    count = int(np.prod([n for _, n in axes]))
    devices = jax.devices()[:count][:: -1 if reverse else 1]
    return Mesh(np.array(devices).reshape([n for _, n in axes]), [name for name, _ in axes])


def _put(array: Any, mesh: Mesh, *spec: Any) -> jax.Array:
    return jax.device_put(array, NamedSharding(mesh, P(*spec)))


PLAIN: dict[str, Callable[[Any], jax.Array]] = {
    "two axes": lambda x: _put(x, _mesh(("data", 4), ("model", 2)), ("data", "model")),
    "the strategy's own": lambda x: jax.device_put(x, _strategy().mesh.split),
    "local data": lambda x: jax.make_array_from_process_local_data(
        NamedSharding(_mesh(("batch", 8)), P("batch")), x
    ),
}
OTHERWISE: dict[str, Callable[[Any], jax.Array]] = {
    "another axis": lambda x: _put(x, _mesh(("d", 8)), None, "d"),
    "half of the devices": lambda x: _put(x, _mesh(("d", 4)), "d"),
    "another order": lambda x: _put(x, _mesh(("d", 8), reverse=True), "d"),
}


@pytest.mark.usefixtures("eager")
def test_a_batch_divided_over_the_replicas_is_their_parts() -> None:
    for divide in PLAIN.values():
        s = _strategy()
        x = np.arange(48, dtype=np.float32).reshape(16, 3)
        divided = divide(x)
        sums = s.run(lambda part, scale: (part * scale).sum(), args=(divided, 2.0))
        assert float(s.reduce("SUM", sums, axis=None)) == 2 * x.sum()
        parts = s.run(lambda batch: batch["x"], args=({"x": divided},))
        assert [part.tolist() for part in parts.values] == x.reshape(8, 2, 3).tolist()
        assert [part.device for part in parts.values] == jax.devices()


def test_verbs_take_it_as_a_per_replica_value() -> None:
    for divide in PLAIN.values():
        s = _strategy()
        x = np.arange(48, dtype=np.float32).reshape(16, 3)
        divided = divide(x)
        np.testing.assert_array_equal(s.gather(divided, axis=0), x)
        np.testing.assert_allclose(s.reduce("MEAN", divided, axis=0), x.mean(0))
        np.testing.assert_allclose(s.reduce("SUM", divided, axis=None), x.reshape(8, 2, 3).sum(0))
        local = s.experimental_local_results({"x": divided})
        assert [part["x"].tolist() for part in local] == x.reshape(8, 2, 3).tolist()
        total = s.extended.reduce_to("SUM", divided, "CPU:3")
        np.testing.assert_allclose(total, x.reshape(8, 2, 3).sum(0))


def test_any_other_division_is_refused_with_the_remedy() -> None:
    for divide in OTHERWISE.values():
        s = _strategy()
        divided, why = divide(np.ones((16, 8), np.float32)), "each of the 8 replicas"
        with pytest.raises(ShardingError, match=rf"Argument params\['w'\].*{why}.*mesh\.whole"):
            s.run(lambda params: params["w"].sum(), args=({"w": divided},))
        with pytest.raises(ShardingError, match=why):
            s.reduce("MEAN", divided, axis=None)
        with pytest.raises(ShardingError, match=why):
            s.gather(divided, axis=0)
        with pytest.raises(ShardingError, match=why):
            s.experimental_local_results([divided])
        whole = jax.device_put(divided, s.mesh.whole)
        sums = s.run(lambda params: params["w"].sum(), args=({"w": whole},))
        assert {float(v) for v in sums.values} == {128.0}


def test_a_program_for_whole_arrays_does_not_serve_divided_ones() -> None:
    s = _strategy()
    x = np.arange(16, dtype=np.float32)

    def fn(v: jax.Array) -> jax.Array:
        return v.sum()

    for value, total in ((x, 8 * 120), (_put(x, _mesh(("d", 8)), "d"), 120), (jnp.asarray(x), 960)):
        for _ in range(2):
            assert float(s.reduce("SUM", s.run(fn, args=(value,)), axis=None)) == total
    with pytest.raises(ShardingError, match="in their order"):
        s.run(fn, args=(_put(x, _mesh(("d", 8), reverse=True), "d"),))
    assert float(s.run(fn, args=(jax.device_put(x, s.mesh.whole),)).values[0]) == 120


def test_parts_mix_with_uneven_batches_and_collectives() -> None:
    s = _strategy(4)
    divided = _put(np.arange(8.0, dtype=np.float32), _mesh(("d", 4)), "d")
    dataset = dl.data.Dataset.range(7).batch(7)
    (batch,) = s.experimental_distribute_dataset(dataset)

    def fn(part: jax.Array, rows: jax.Array) -> Any:
        return dl.get_replica_context().all_reduce("SUM", part.sum() + rows.sum())

    results = s.run(fn, args=(divided, batch))
    assert {float(v) for v in results.values} == {28.0 + 21.0}


def test_replicated_arrays_and_one_replica_are_as_before() -> None:
    x = np.arange(16, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        s = _strategy()
        whole = _put(x, _mesh(("d", 8)))
        assert {float(v) for v in s.run(lambda v: v.sum(), args=(whole,)).values} == {120.0}
        with s.scope():
            assert float(dl.Variable(whole).value().sum()) == 120.0
        one = dl.OneDeviceStrategy("CPU:2")
        divided = _put(x, _mesh(("d", 8)), "d")
        assert float(one.run(lambda v: v.sum(), args=(divided,))) == 120.0
        assert float(one.reduce("SUM", divided, axis=0)) == 120.0
        assert float(dl.get_strategy().run(lambda v: v.sum(), args=(divided,))) == 120.0
