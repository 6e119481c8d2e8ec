"""The arguments that a replica function receives, and the results of run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import NeedsPythonError
from distlab.values.distributed import stack


def _strategy(replicas: int = 3) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _local(strategy: dl.Strategy, value: object) -> list[Any]:
    return [np.asarray(v).tolist() for v in strategy.experimental_local_results(value)]


def test_components_stay_on_their_replicas_devices() -> None:
    s = dl.MirroredStrategy(["CPU:5", "CPU:2"])
    result = s.run(lambda v: v + 1, args=(stack([jnp.zeros(1), jnp.zeros(1)], s.mesh),))
    assert [next(iter(v.devices())) for v in result.values] == [jax.devices()[5], jax.devices()[2]]


def test_a_state_goes_in_and_out_and_is_compiled_once() -> None:
    s = _strategy(4)
    state = s.replicate({"w": np.ones(3, np.float32), "n": 0})
    traces = []

    def step(state: dict[str, jax.Array]) -> dict[str, jax.Array]:
        traces.append(1)
        return {"w": state["w"] * 2, "n": state["n"] + 1}

    for _ in range(5):
        state = s.run(step, args=(state,))
    assert len(traces) == 1
    assert _local(s, state["w"]) == [[32.0] * 3] * 4
    assert _local(s, state["n"]) == [5] * 4


def test_per_replica_values_pass_through_jit_and_grad() -> None:
    s = _strategy(2)
    x = stack([jnp.arange(2.0), jnp.arange(2.0) + 2], s.mesh)

    @jax.jit
    def total(v: dl.PerReplica) -> jax.Array:
        squares = s.run(lambda a: a * a, args=(v,))
        return s.reduce("SUM", squares, axis=0)

    assert float(total(x)) == 14.0
    assert _local(s, jax.grad(total)(x)) == [[0.0, 2.0], [4.0, 6.0]]


def test_random_keys_can_be_given_and_returned() -> None:
    s = _strategy(2)

    def fn(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        key = jax.random.fold_in(key, dl.get_replica_context().replica_id_in_sync_group)
        key, used = jax.random.split(key)
        return key, jax.random.normal(used, ())

    keys, draws = s.run(fn, args=(jax.random.key(0),))
    first, second = _local(s, draws)
    assert first != second
    _, again = s.run(jax.random.split, args=(keys,)), draws
    assert _local(s, again) == [first, second]


def test_a_numpy_argument_may_be_written_to_after_the_call() -> None:
    s = _strategy(2)
    buffer = np.zeros(1 << 16, np.float32)
    result = s.run(lambda v: v + 1, args=(buffer,))
    buffer[:] = 99
    assert float(result.values[1].max()) == 1.0


def test_a_number_that_python_needs_is_named() -> None:
    for fn in [
        lambda x, n: jnp.arange(n) + x,
        jnp.repeat,
        lambda x, n: x if n else -x,
    ]:
        strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
        with pytest.raises(
            NeedsPythonError, match=r"as arrays, here (n|repeats)\. .*RunOptions\(static_argnums"
        ):
            strategy.run(fn, args=(jnp.ones(3), 1))
        strategy.run(fn, args=(jnp.ones(3), 1), options=dl.RunOptions(static_argnums=1))


def test_where_no_argument_is_a_number_none_is_named() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(NeedsPythonError) as caught:
        strategy.run(lambda x: x if x.sum() > 0 else -x, args=(jnp.ones(3),))
    assert "static_argnums" not in str(caught.value)
