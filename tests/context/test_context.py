"""The current strategy and the current context."""

from __future__ import annotations

import pytest

import distlab as dl


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


def test_programs_run_unchanged_under_the_default_strategy() -> None:
    strategy = dl.get_strategy()
    doubled = strategy.run(lambda x: dl.get_replica_context().all_reduce("SUM", x * 2), args=(3.0,))
    assert float(strategy.reduce("MEAN", doubled, axis=None)) == 6.0
