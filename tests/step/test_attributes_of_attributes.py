"""What a method reads through objects that its object holds: `self.cfg.lr`, `self.state`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import RecompilationWarning
from distlab.events import Compile
from distlab.recording.recorder import RingRecorder

VALUES = (1.0, 2.0, 3.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """As Flax's tutorials have it: replaced as a whole."""

    params: dict[str, Any]


@dataclasses.dataclass
class Config:
    rate: float = 0.0


class Trainer:
    def __init__(self) -> None:
        self.config = Config()
        self.deep = SimpleNamespace(optim=SimpleNamespace(rate=0.0))
        self.state = TrainState({"w": jnp.zeros(())})
        self.holder = SimpleNamespace(w=jnp.zeros(()))

    def by_config(self, x: Any) -> Any:
        return x * self.config.rate

    def by_deep_config(self, x: Any) -> Any:
        optim = self.deep.optim.rate
        return x * optim

    def by_state(self, x: Any) -> Any:
        return x * self.state.params["w"]

    def by_whole_state(self, x: Any) -> Any:
        return multiplied(self.state, x)

    def by_array(self, x: Any) -> Any:
        return x * self.holder.w

    def by_method(self, x: Any) -> Any:
        return self.by_inner(x)

    def by_inner(self, x: Any) -> Any:
        def inner() -> Any:
            return x * self.config.rate

        return inner()


def multiplied(state: TrainState, x: Any) -> Any:
    return x * state.params["w"]


def changes(trainer: Trainer, way: str) -> Iterator[None]:
    for value in VALUES:
        trainer.config.rate = value
        trainer.deep.optim.rate = value
        trainer.state = dataclasses.replace(trainer.state, params={"w": jnp.float32(value)})
        trainer.holder.w = jnp.float32(value)
        if way == "by_method":
            trainer.config = Config(value)
        yield


WAYS = [name for name in vars(Trainer) if name.startswith("by_")]


@pytest.mark.parametrize("way", WAYS)
def test_what_changes_behind_an_attribute_is_noticed_and_warned_of(way: str) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    trainer = Trainer()
    told = "a TrainState" if way == "by_whole_state" else r"(rate|w|arrays)"
    with pytest.warns(RecompilationWarning, match=rf"Trainer.{way} was compiled 3 times.*{told}"):
        seen = [
            float(strategy.run(getattr(trainer, way), args=(1.0,)).values[0])
            for _ in changes(trainer, way)
        ]
    assert seen == [*VALUES]


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
def test_what_changes_behind_an_attribute_is_noticed_by_a_function_made_anew() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    trainer = Trainer()

    def made() -> Callable[[Any], Any]:
        return lambda x: x * trainer.config.rate + trainer.state.params["w"]

    seen = [
        float(strategy.run(made(), args=(1.0,)).values[0]) for _ in changes(trainer, "by_config")
    ]
    assert seen == [2 * value for value in VALUES]


class Lazy:
    """Makes objects while its step is traced: what is there before a call says nothing of it."""

    def __init__(self) -> None:
        self.counter = SimpleNamespace(calls=0)

    def build(self) -> None:
        if not hasattr(self, "model"):
            self.model = SimpleNamespace(scale=2.0)

    @cached_property
    def table(self) -> Any:
        return SimpleNamespace(offset=1.0)

    def step(self, x: Any) -> Any:
        self.build()
        self.seen = SimpleNamespace(x=x)
        self.model.seen = x
        return self.seen.x * self.model.scale + self.table.offset + 0 * self.model.seen

    def counted(self, x: Any) -> Any:
        return self.report(x)

    def report(self, x: Any) -> Any:
        return x + len(self.counter.__class__.__name__)


@pytest.mark.parametrize("way", ["step", "counted"])
def test_objects_that_a_step_makes_itself_compile_nothing_anew(
    way: str, recorder: RingRecorder
) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    lazy = Lazy()
    results = []
    for _ in range(4):
        results.append(float(strategy.run(getattr(lazy, way), args=(1.0,)).values[0]))
        lazy.counter.calls += 1
    compiled = [event for event in recorder.ring.since(0).events if isinstance(event, Compile)]
    assert len(compiled) == 1
    assert len(set(results)) == 1


def test_trainers_with_models_of_their_own_are_no_reason_to_warn() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    seen = []
    for _ in range(4):
        trainer = Trainer()
        seen.append(float(strategy.run(trainer.by_whole_state, args=(1.0,)).values[0]))
    assert seen == [0.0] * 4
