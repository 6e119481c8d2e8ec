"""`dl.simulate` of a replica function: traced again for replicas that are not here."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError
from distlab.simulation import replicas

WIDE = 64
BYTES = WIDE * WIDE * 4
SIZES = (4, 16, 64)


def trained(strategy: dl.MirroredStrategy, *, gathers: bool = False) -> Any:
    """Returns a step that has run on the strategy."""
    with strategy.scope():
        w = dl.Variable(np.zeros((WIDE, WIDE), "float32"), name="w")

    def step(x: Any) -> Any:
        context = dl.get_replica_context()
        value, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w.value())
        w.assign_sub(0.1 * context.all_reduce("MEAN", gradient))
        return context.all_gather(x, 0).sum() + value if gathers else value

    batches = dl.data.Dataset.from_tensors(np.ones((32, WIDE), "float32"))
    for x in strategy.experimental_distribute_dataset(batches):
        strategy.run(step, args=(x,))
    return step


def test_a_mirrored_step_is_rebuilt_for_more_replicas() -> None:
    step = trained(dl.MirroredStrategy(), gathers=True)
    found = dl.simulate(step, [{"replica": n} for n in SIZES])
    assert found.name == "step"
    for n, one in zip(SIZES, found, strict=True):
        rows = 4 * WIDE * 4  # of each replica, as on the eight that ran
        assert one.sent() == {
            "replica": {"all-reduce": 2 * BYTES * (n - 1) // n, "all-gather": rows * (n - 1)}
        }
        assert one.memory.argument_bytes == BYTES + rows
        assert [place.name for place in one.inputs] == ["w", "x"]
        assert one.computed_times == pytest.approx(1, abs=0.1)
        purposes = {x.kind: x.names for x in one.collectives}
        assert purposes["all-reduce"] == ["w"]


def test_divided_variables_are_divided_over_more_replicas() -> None:
    step = trained(dl.MirroredStrategy(shard_variables=True))
    found = dl.simulate(step, [{"replica": n} for n in (16, 64, 96)], most_devices=16)
    for one in found[:2]:
        n = one.devices
        sent = BYTES // n * (n - 1)
        assert one.sent() == {"replica": {"all-gather": sent, "reduce-scatter": sent}}
        assert one.memory.argument_bytes == BYTES // n + 4 * WIDE * 4
    assert found[1].extrapolated_from == [{"replica": 2}, {"replica": 4}, {"replica": 8}]
    assert found[2].does_not_divide == "w[64, 64]: 64 by replica 96"


def test_a_step_has_the_axes_of_its_strategy() -> None:
    step = trained(dl.MirroredStrategy(["CPU:0", "CPU:1"]))
    with pytest.raises(ArgumentValueError, match="of which only replica may be another"):
        dl.simulate(step, [{"data": 4}])


def test_a_program_is_found_by_an_equal_function() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    assert replicas.program_of(lambda: 1) is None

    def make_step() -> Any:
        return lambda: jnp.float32(1)

    strategy.run(make_step())
    program = replicas.program_of(make_step())
    assert program is not None
    assert program.host() is strategy
