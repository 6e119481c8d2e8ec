"""What the programs of a strategy keep in memory, and what they let go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import distlab as dl
from distlab.events import Compile
from distlab.step.programs import cache
from tests.listening import listening

Trial = Callable[[dl.Strategy, float], dl.Variable]


def _variable(strategy: dl.Strategy) -> dl.Variable:
    with strategy.scope():
        return dl.Variable(0.0)


def with_a_nested_step(strategy: dl.Strategy, rate: float) -> dl.Variable:
    weights = _variable(strategy)

    def step(x: Any) -> None:
        weights.assign_sub(rate * x)

    for _ in range(2):
        strategy.run(step, (1.0,))
    return weights


def with_steps_made_anew(strategy: dl.Strategy, rate: float) -> dl.Variable:
    weights = _variable(strategy)
    for _ in range(2):
        strategy.run(lambda x: weights.assign_sub(rate * x), (1.0,))
    return weights


class _Trainer:
    def __init__(self, strategy: dl.Strategy, rate: float) -> None:
        self.weights = _variable(strategy)
        self.rate = rate

    def step(self, x: Any) -> None:
        self.weights.assign_sub(self.rate * x)


def with_a_method(strategy: dl.Strategy, rate: float) -> dl.Variable:
    trainer = _Trainer(strategy, rate)
    for _ in range(2):
        strategy.run(trainer.step, (1.0,))
    return trainer.weights


_step_count: list[dl.Variable] = []


def with_a_variable_for_all(strategy: dl.Strategy, rate: float) -> dl.Variable:
    if not _step_count:
        with strategy.scope():
            _step_count.append(dl.Variable(0))
    weights = _variable(strategy)

    def step(x: Any) -> None:
        _step_count[0].assign_add(1)
        weights.assign_sub(rate * x)

    for _ in range(2):
        strategy.run(step, (1.0,))
    return weights


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
@pytest.mark.parametrize(
    "trial",
    [
        with_a_nested_step,
        with_a_method,
        with_a_variable_for_all,
    ],
)
def test_variables_of_trainings_that_are_dropped_are_freed(trial: Trial) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    _step_count.clear()
    weights = []
    for number in range(4):
        variable = trial(strategy, 0.5 * number)
        # Another variable may have the place in memory of one that is gone.
        assert float(variable.numpy()) == -1.0 * number
        weights.append(weakref.ref(variable))
        del variable
        gc.collect()
    assert [reference() for reference in weights] == [None] * 4
    _step_count.clear()


@pytest.mark.parametrize("trial", [with_steps_made_anew, with_a_method])
def test_a_step_made_anew_finds_its_program(trial: Trial) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with listening() as listener:
        weights = trial(strategy, 1.0)
    assert len(listener.of(Compile)) == 1
    assert float(weights.numpy()) == -2.0


@pytest.mark.filterwarnings("ignore::distlab.errors.RecompilationWarning")
def test_a_variable_holds_the_programs_of_the_last_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "_PROGRAMS_KEPT", 8)
    monkeypatch.setattr(cache, "_FUNCTIONS_KEPT", 8)
    strategy = dl.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        count = dl.Variable(0)
    for number in range(12):
        strategy.run(lambda number=number: count.assign_add(number))
    assert int(count.numpy()) == sum(range(12))
    assert len(count._dependents) == 8
