"""Donated arguments, whose memory results reuse: `RunOptions(donate_argnums=...)`."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab import events
from distlab.devices import in_flight
from distlab.errors import DonatedError, OptionError

FIRST = dl.RunOptions(donate_argnums=0)


def _strategy(replicas: int) -> dl.Strategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def _per_replica(strategy: dl.Strategy, size: int = 1000) -> dl.PerReplica:
    return strategy.experimental_distribute_values_from_function(
        lambda c: jnp.full(size, float(c.replica_id_in_sync_group))
    )


def _step(state: jax.Array, x: jax.Array) -> jax.Array:
    return state + dl.get_replica_context().all_reduce("SUM", x)


def test_results_take_over_the_memory_of_the_state() -> None:
    replicas = 3
    strategy = _strategy(replicas)
    state, x = _per_replica(strategy), _per_replica(strategy)
    before = [shard.data.unsafe_buffer_pointer() for shard in state.stacked.addressable_shards]
    new = strategy.run(_step, args=(state, x), options=FIRST)
    after = [shard.data.unsafe_buffer_pointer() for shard in new.stacked.addressable_shards]
    assert after == before
    assert state.stacked.is_deleted()
    assert not x.stacked.is_deleted()
    total = sum(range(replicas))
    assert [float(v[0]) for v in new.values] == [r + total for r in range(replicas)]


@pytest.mark.slow
def test_a_donating_loop_gives_the_numbers_of_a_keeping_one(tmp_path: Path) -> None:
    strategy = _strategy(4)
    x = _per_replica(strategy, 3)
    kept = given = strategy.run(lambda a: {"w": a * 0, "step": jnp.int32(0)}, args=(x,))
    given = jax.tree.map(jnp.copy, given)

    def step(state: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        mean = dl.get_replica_context().all_reduce("MEAN", x)
        return {"w": state["w"] * 0.9 + mean, "step": state["step"] + 1}

    with dl.record(tmp_path / "run") as run:
        for number in range(100):  # past the bound of steps in flight
            given = strategy.run(step, args=(given, x), options=FIRST)
            kept = strategy.run(step, args=(kept, x))
            run.log(count=given["step"].values[0], number=number)
    assert [int(v) for v in given["step"].values] == [100] * 4
    for mine, theirs in zip(given["w"].values, kept["w"].values, strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
    with dl.Run.open(tmp_path / "run") as recorded:
        steps = list(recorded.events("step"))
        assert len(steps) == 200
        assert not list(recorded.events("error"))
        assert not list(recorded.events("lost"))
        metrics = [e for e in recorded.events("metric") if isinstance(e, events.Metric)]
    assert [m.values["number"] for m in metrics] == list(range(100))


def test_steps_in_flight_stay_bounded_with_donation() -> None:
    strategy = _strategy(8)
    state = _per_replica(strategy, 10)
    for _ in range(3 * in_flight.LIMIT):
        state = strategy.run(
            lambda s: s + dl.get_replica_context().all_reduce("MEAN", s),
            args=(state,),
            options=FIRST,
        )
        # The array that marks a step's end is never donated, so it can still be awaited.
        assert not any(array.is_deleted() for array in in_flight.waiting()[-1:])
    alive = [array for array in in_flight.waiting() if not array.is_deleted()]
    assert len(alive) > in_flight.LIMIT // 2
    assert np.isfinite(np.asarray(state.values[0])).all()


def test_an_array_that_lies_elsewhere_is_copied_and_stays() -> None:
    strategy = _strategy(2)
    state = jnp.arange(4.0)
    for _ in range(3):
        new = strategy.run(lambda s: s * 2, args=(state,), options=FIRST)
        assert not state.is_deleted()
        np.testing.assert_array_equal(np.asarray(new.values[1]), [0, 2, 4, 6])
    np.testing.assert_array_equal(np.asarray(state), [0, 1, 2, 3])


def test_a_donated_state_is_updated_in_a_ragged_step() -> None:
    strategy = _strategy(3)
    x = strategy.experimental_distribute_values_from_function(
        lambda c: jnp.ones((3 - c.replica_id_in_sync_group, 4))
    )

    def step(state: dict[str, jax.Array], v: jax.Array) -> dict[str, jax.Array]:
        gradients = jax.grad(lambda w: jnp.sum(v @ w))(state["w"])
        total = dl.get_replica_context().all_reduce("SUM", gradients)
        return {"w": state["w"] - total, "count": state["count"] + 1, "unused": state["unused"]}

    state = strategy.replicate({"w": jnp.ones(4), "count": 0, "unused": jnp.zeros(3)})
    for _ in range(3):
        before, state = state, strategy.run(step, args=(state, x), options=FIRST)
        assert all(one.stacked.is_deleted() for one in before.values())
    for copy in state["w"].values:
        np.testing.assert_array_equal(copy, np.full(4, 1.0 - 3 * 6))
    assert [int(count) for count in state["count"].values] == [3, 3, 3]


def test_functions_that_run_eagerly_take_nothing_over() -> None:
    strategy = _strategy(2)
    state = _per_replica(strategy)
    options = dl.RunOptions(run_eagerly=True, donate_argnums=(0,))
    strategy.run(lambda s: s + 1, args=(state,), options=options)
    assert not state.stacked.is_deleted()


def test_a_donated_argument_is_refused_by_name() -> None:
    strategy = _strategy(2)
    state, x = _per_replica(strategy), _per_replica(strategy)
    new = strategy.run(_step, args=(state, x), options=FIRST)
    with pytest.raises(
        DonatedError, match=r"state: float32\[1000\] was deleted.*result of that call"
    ):
        strategy.run(_step, args=(state, x), options=FIRST)
    with pytest.raises(DonatedError, match=r"state: float32\[1000\] was deleted"):
        strategy.run(_step, args=(state, x))
    again = strategy.run(_step, args=(new, x))
    assert [float(v[0]) for v in again.values] == [2.0, 3.0]


def test_one_array_donated_twice_is_refused() -> None:
    strategy = _strategy(2)
    x = _per_replica(strategy)
    with pytest.raises(DonatedError, match=r"state and x are one array.*a copy of one of them"):
        strategy.run(_step, args=(x, x), options=FIRST)
    assert not x.stacked.is_deleted()


def test_positions_without_an_argument_are_refused() -> None:
    for positions in [2, (0, 2)]:
        strategy = _strategy(2)
        state, x = _per_replica(strategy), _per_replica(strategy)
        for eager in (True, False):
            options = dl.RunOptions(run_eagerly=eager, donate_argnums=positions)  # type: ignore[arg-type]
            with pytest.raises(OptionError, match="arguments in args, which has 2 here"):
                strategy.run(_step, args=(state, x), options=options)
        assert not state.stacked.is_deleted()


def test_what_is_no_position_is_refused_in_run_options() -> None:
    for positions in [-1, "state", (0, "x")]:
        with pytest.raises(OptionError, match="arguments in args, a number or a tuple"):
            dl.RunOptions(donate_argnums=positions)  # type: ignore[arg-type]


def test_a_program_that_ran_before_refuses_a_donated_batch() -> None:
    strategy = _strategy(2)

    def double(x: jax.Array) -> jax.Array:
        return x * 2

    for _ in range(3):
        strategy.run(double, args=(_per_replica(strategy),))
    x = _per_replica(strategy)
    strategy.run(lambda x: x * 3, args=(x,), options=FIRST)
    with pytest.raises(DonatedError, match=r"x: float32\[.*\] was deleted, or donated"):
        strategy.run(double, args=(x,))
