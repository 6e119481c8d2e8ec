"""Misuse of controllers, trainers, evaluators and the managers of their checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    DistlabError,
    StructureError,
)
from tests.misuse.table import require_refusal


class Trainer(dl.StandardTrainer):
    """Counts its steps."""

    def __init__(self, dataset: Any = range(9)) -> None:
        super().__init__(dataset)
        self.step = dl.Variable(0)

    def train_step(self, iterator: Any) -> None:
        next(iterator)
        self.step.assign_add(1)


class Evaluator(dl.StandardEvaluator):
    """Counts nothing."""

    def eval_step(self, iterator: Any) -> None:
        next(iterator)


def controller(**options: Any) -> dl.Controller:
    trainer = Trainer()
    given = {"global_step": trainer.step, "evaluator": Evaluator([1]), **options}
    return dl.Controller(trainer=trainer, **given)


class Returning(Trainer):
    """Returns a list of numbers."""

    def train_loop_end(self) -> Any:
        return [1.0]


class ReturningEvaluator(Evaluator):
    """Returns a number."""

    def eval_end(self, *_: Any, **__: Any) -> Any:
        return 0


class Unmade(Trainer):
    """Does not call the `__init__` of its base."""

    def __init__(self) -> None:
        self.step = dl.Variable(0)


class UnmadeEvaluator(Evaluator):
    """Does not call the `__init__` of its base."""

    def __init__(self) -> None:
        pass


def train(trainer: Trainer) -> None:
    dl.Controller(trainer=trainer, global_step=trainer.step).train(1)


def manager(folder: Path, **options: Any) -> dl.train.CheckpointManager:
    return dl.train.CheckpointManager(dl.train.Checkpoint(v=dl.Variable(1.0)), folder, **options)


WRONG: Final[dict[str, tuple[Callable[[Path], object], type[DistlabError], str]]] = {
    "steps text": (lambda _: controller().train("x"), ArgumentValueError, "steps .* got 'x'"),  # type: ignore[arg-type]
    "steps fraction": (lambda _: controller().train(1.5), ArgumentValueError, "got 1.5"),  # type: ignore[arg-type]
    "steps negative": (lambda _: controller().train(-1), ArgumentValueError, "got -1"),
    "steps bool": (lambda _: controller().train(True), ArgumentValueError, "got True"),
    "train_steps": (
        lambda _: controller().train_and_evaluate("x"),  # type: ignore[arg-type]
        ArgumentValueError,
        "train_steps .* 'x'",
    ),
    "eval_interval": (
        lambda _: controller().train_and_evaluate(2, eval_interval=0),
        ArgumentValueError,
        "eval_interval .* got 0",
    ),
    "global_step": (
        lambda _: controller(global_step="x"),
        ArgumentTypeError,
        "global_step .* got 'x'",
    ),
    "train_actions function": (
        lambda _: controller(train_actions=print),
        ArgumentTypeError,
        "train_actions must be a list of functions, got <built-in function print>",
    ),
    "train_actions names": (
        lambda _: controller(train_actions=["print"]),
        ArgumentTypeError,
        r"train_actions .* got \['print'\]",
    ),
    "eval_actions text": (
        lambda _: controller(eval_actions="print"),
        ArgumentTypeError,
        "eval_actions .* got 'print'",
    ),
    "train_loop_end": (
        lambda _: train(Returning()),
        StructureError,
        r"train_loop_end must return a dict .* got \[1.0\]",
    ),
    "eval_end": (
        lambda _: controller(evaluator=ReturningEvaluator([1])).evaluate(),
        StructureError,
        "eval_end must return a dict .* got 0",
    ),
    "trainer without super": (
        lambda _: train(Unmade()),
        ContextError,
        r"Unmade has no train_iterator.*super\(\).__init__\(train_dataset\)",
    ),
    "evaluator without super": (
        lambda _: UnmadeEvaluator().evaluate(),
        ContextError,
        r"UnmadeEvaluator has no eval_dataset.*super\(\).__init__\(eval_dataset\)",
    ),
    "train_dataset": (lambda _: Trainer(3), ArgumentTypeError, "train_dataset .* got 3"),
    "train_dataset text": (lambda _: Trainer("ab"), ArgumentTypeError, "got 'ab'"),
    "eval_dataset": (lambda _: Evaluator(None), ArgumentTypeError, "eval_dataset .* None"),  # type: ignore[arg-type]
    "init_fn": (lambda p: manager(p, init_fn=3), ArgumentTypeError, "init_fn .* got 3"),
    "checkpoint_name number": (
        lambda p: manager(p, checkpoint_name=3),
        ArgumentValueError,
        "checkpoint_name .* got 3",
    ),
    "checkpoint_name folder": (
        lambda p: manager(p, checkpoint_name="a/b"),
        ArgumentValueError,
        "'a/b'",
    ),
    "checkpoint_name empty": (lambda p: manager(p, checkpoint_name=""), ArgumentValueError, "''"),
    "checkpoint_number text": (lambda p: manager(p).save("x"), ArgumentValueError, "number .*'x'"),
    "checkpoint_number negative": (lambda p: manager(p).save(-4), ArgumentValueError, "got -4"),
    "checkpoint_number fraction": (lambda p: manager(p).save(1.5), ArgumentValueError, "1.5"),
    "checkpoint_number huge": (lambda p: manager(p).save(float("inf")), ArgumentValueError, "inf"),
    "checkpoint_number rows": (lambda p: manager(p).save([1, 2]), ArgumentValueError, r"\[1, 2\]"),
    "step_counter": (
        lambda p: manager(p, step_counter="x", checkpoint_interval=2).save(),
        ArgumentValueError,
        "step_counter .*'x'",
    ),
    "enable_async": (
        lambda _: dl.train.CheckpointOptions(enable_async="no"),  # type: ignore[arg-type]
        ArgumentTypeError,
        "enable_async .* got 'no'",
    ),
}
"""What is wrong: the call, its error, and what the message names."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_refused_in_words(name: str, tmp_path: Path) -> None:
    call, kind, names = WRONG[name]
    require_refusal(lambda: call(tmp_path), kind, names)
    assert not list(tmp_path.iterdir())


def test_numbers_may_be_those_of_numpy_and_variables(tmp_path: Path) -> None:
    made = controller(checkpoint_manager=manager(tmp_path / "own"))
    made.train(np.int64(2))  # type: ignore[arg-type]
    assert made.step == 2
    saver = manager(tmp_path / "other")
    for number in (np.int64(3), dl.Variable(4), np.float32(5)):
        assert saver.save(number) == saver.latest_checkpoint
    assert [Path(path).name for path in saver.checkpoints] == ["ckpt-3", "ckpt-4", "ckpt-5"]
