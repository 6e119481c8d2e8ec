"""Sums and means of bools and small whole numbers are those of the numbers, on every way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import OptionError, ValueShapeError

STRATEGIES = {
    "default algorithm": lambda: dl.MirroredStrategy(["CPU:0", "CPU:1"]),
    "pairs": lambda: dl.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=dl.HierarchicalCopyAllReduce()
    ),
    "all-reduce": lambda: dl.MirroredStrategy(
        ["CPU:0", "CPU:1"], cross_device_ops=dl.NcclAllReduce()
    ),
}
CORRECT = [np.array([True, True, False]), np.array([True, False, False])]


def per_replica(strategy: dl.Strategy, values: list[Any]) -> Any:
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_bools_are_counted_by_every_verb(name: str) -> None:
    strategy = STRATEGIES[name]()
    correct = per_replica(strategy, CORRECT)
    assert float(strategy.reduce("MEAN", correct, axis=0)) == 0.5
    assert int(strategy.reduce("SUM", correct, axis=0)) == 3
    assert strategy.reduce("SUM", correct, axis=None).tolist() == [2, 1, 0]
    assert strategy.extended.reduce_to("SUM", correct, "CPU:0").tolist() == [2, 1, 0]
    for eagerly in (False, True):
        options = dl.RunOptions(run_eagerly=eagerly)
        total = strategy.run(
            lambda a: dl.get_replica_context().all_reduce("SUM", a),
            args=(correct,),
            options=options,
        )
        assert [copy.tolist() for copy in total.values] == [[2, 1, 0]] * 2


def test_bools_are_counted_by_one_replica_and_without_a_strategy() -> None:
    correct = jnp.array([True, True, False, True])
    for strategy in (dl.get_strategy(), dl.OneDeviceStrategy("CPU:0")):
        assert float(strategy.reduce("MEAN", correct, axis=0)) == 0.75
        assert int(strategy.reduce("SUM", correct, axis=0)) == 3


def test_a_mean_of_small_whole_numbers_does_not_wrap_around() -> None:
    strategy = STRATEGIES["default algorithm"]()
    pixels = per_replica(strategy, [np.array([200, 203], np.uint8) for _ in range(2)])
    assert float(strategy.reduce("MEAN", pixels, axis=0)) == 201.5
    assert strategy.reduce("MEAN", pixels, axis=None).tolist() == [200.0, 203.0]
    assert strategy.reduce("SUM", pixels, axis=None).dtype == np.uint8  # as in TensorFlow


@pytest.mark.parametrize("options", [3, "fast", {"bytes_per_pack": 1}])
def test_options_of_collectives_that_are_none_are_refused(options: Any) -> None:
    strategy = STRATEGIES["default algorithm"]()
    values = per_replica(strategy, [np.float32(1), np.float32(2)])

    def gathered(x: Any) -> Any:
        return dl.get_replica_context().all_gather(x[None], 0, options)

    calls: list[Callable[[], Any]] = [
        lambda: dl.get_replica_context().all_reduce("SUM", 1.0, options),
        lambda: strategy.run(gathered, args=(values,)),
        lambda: strategy.extended.reduce_to("SUM", values, "CPU:0", options),
        lambda: strategy.extended.batch_reduce_to("SUM", [], options),
    ]
    for call in calls:
        with pytest.raises(OptionError, match="CommunicationOptions or None"):
            call()


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("synchronization", ["ON_WRITE", "ON_READ"])
def test_truth_values_of_replicas_have_no_sum_in_a_variable(
    synchronization: str, eagerly: bool
) -> None:
    strategy = STRATEGIES["default algorithm"]()
    options = dl.RunOptions(run_eagerly=eagerly)
    with strategy.scope():
        flag, first = (
            dl.Variable(
                False,
                name="flag",
                synchronization=dl.VariableSynchronization[synchronization],
                aggregation=dl.VariableAggregation[name],
            )
            for name in ("SUM", "ONLY_FIRST_REPLICA")
        )

    def step(variable: dl.Variable) -> None:
        variable.assign(jnp.equal(dl.get_replica_context().replica_id_in_sync_group, 0))

    def assigned() -> None:
        strategy.run(lambda: step(flag), options=options)
        flag.read_value()

    rule = "flag holds truth values, which have no SUM, so .*ONLY_FIRST_REPLICA, or a .*int32"
    with pytest.raises(ValueShapeError, match=rule) as refused:
        assigned()
    assert "Use aggregation" in str(refused.value)
    strategy.run(lambda: step(first), options=options)
    assert bool(first.numpy()) is True
