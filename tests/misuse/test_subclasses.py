"""Subclasses: those of strategies work, and variables and values of replicas refuse to have any."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab import events
from distlab.errors import ArgumentTypeError
from tests.listening import listening
from tests.misuse.table import has_remedy


class Counting(dl.MirroredStrategy):
    """A strategy of the user's."""

    def __init__(self) -> None:
        super().__init__(["CPU:0", "CPU:1"])
        self.steps = 0

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Counts."""
        self.steps += 1
        return super().run(*args, **kwargs)


def test_a_subclass_of_a_strategy_is_that_strategy() -> None:
    with listening() as heard:
        strategy = Counting()
    with strategy.scope():
        weight = dl.Variable(2.0)
    batches = strategy.experimental_distribute_dataset(dl.data.Dataset.range(4).batch(4))
    for batch in batches:
        losses = strategy.run(lambda x: jnp.sum(x * weight), args=(batch,))
    assert float(strategy.reduce("SUM", losses, axis=None)) == 12.0
    assert strategy.steps == 1
    assert repr(strategy) == "Counting(CPU:0, CPU:1)"
    assert [event.name for event in heard.of(events.Strategy)] == ["MirroredStrategy"]


@pytest.mark.parametrize(
    "base",
    [dl.Variable, dl.ShardedVariable, dl.PerReplica, dl.Mirrored, dl.DistributedValues],
)
def test_a_class_that_verbs_know_objects_by_has_no_subclasses(base: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=rf"{base.__name__} can't have .* Mine") as refused:
        type("Mine", (base,), {"__module__": "elsewhere"})
    assert has_remedy(str(refused.value))


def test_the_base_of_all_strategies_says_what_to_make() -> None:
    class Own(dl.Strategy):
        """A strategy without a place."""

    extended: Any = dl.MirroredStrategy(["CPU:0"]).extended
    for make in (dl.Strategy, Own, lambda: Own(extended)):
        with pytest.raises(ArgumentTypeError, match="Make a MirroredStrategy"):
            make()
