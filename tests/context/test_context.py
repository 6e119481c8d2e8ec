"""The current strategy and the current context."""

from __future__ import annotations

import threading

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import ContextError


def test_outside_of_any_scope_it_is_the_default_replica_context() -> None:
    context = dl.get_replica_context()
    assert context is not None
    assert (context.replica_id_in_sync_group, context.num_replicas_in_sync) == (0, 1)
    assert context.strategy is dl.get_strategy()
    assert not dl.has_strategy()
    assert not dl.in_cross_replica_context()


def test_a_scope_is_cross_replica_context_of_its_strategy() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope() as entered:
        assert entered is strategy
        assert dl.get_strategy() is strategy
        assert dl.in_cross_replica_context()
        assert dl.get_replica_context() is None
        with strategy.scope():
            assert dl.get_strategy() is strategy
    assert not dl.has_strategy()


def test_run_is_replica_context_and_leaves_it_after_an_error() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    seen = []

    def fn() -> None:
        seen.append((dl.get_strategy() is strategy, dl.in_cross_replica_context()))
        raise KeyError("x")

    with pytest.raises(KeyError):
        strategy.run(fn)
    assert seen == [(True, False)]
    assert not dl.has_strategy()


def test_scopes_of_two_strategies_do_not_nest() -> None:
    one, other = dl.MirroredStrategy(["CPU:0", "CPU:1"]), dl.OneDeviceStrategy("CPU:0")
    with one.scope():
        with pytest.raises(ContextError, match=r"OneDeviceStrategy.*inside the scope of Mirrored"):
            other.scope().__enter__()
        with pytest.raises(ContextError):
            other.run(lambda: 1)
        assert dl.get_strategy() is one


def test_cross_replica_verbs_are_refused_in_a_replica_function() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    for verb in (
        lambda: strategy.run(lambda: jnp.ones(1)),
        lambda: strategy.reduce("SUM", jnp.ones(1), axis=None),
        lambda: strategy.scope().__enter__(),
    ):
        with pytest.raises(ContextError, match="cross-replica context"):
            strategy.run(verb)


def test_a_scope_belongs_to_one_thread() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    seen: list[bool] = []
    with strategy.scope():
        thread = threading.Thread(target=lambda: seen.append(dl.has_strategy()))
        thread.start()
        thread.join(30)
    assert seen == [False]


def test_set_strategy_holds_until_it_is_taken_back() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    dl.experimental_set_strategy(strategy)
    try:
        assert dl.get_strategy() is strategy
        with strategy.scope(), pytest.raises(ContextError, match="inside a scope"):
            dl.experimental_set_strategy(None)
    finally:
        dl.experimental_set_strategy(None)
    assert not dl.has_strategy()


def test_programs_run_unchanged_under_the_default_strategy() -> None:
    strategy = dl.get_strategy()
    doubled = strategy.run(lambda x: dl.get_replica_context().all_reduce("SUM", x * 2), args=(3.0,))
    assert float(strategy.reduce("MEAN", doubled, axis=None)) == 6.0
