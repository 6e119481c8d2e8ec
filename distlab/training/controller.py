"""A loop that trains, evaluates, saves and resumes: Orbit's controller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

import numpy as np

from distlab import events
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DistlabError,
    StructureError,
)
from distlab.events import sink
from distlab.integrations.orbax.manager import CheckpointManager
from distlab.strategies.abstract import Strategy
from distlab.strategies.current import get_strategy
from distlab.text.shown import shown
from distlab.training.checks import (
    checked_total,
    require_count,
    require_kind,
)
from distlab.training.standard import Outputs, StandardEvaluator, StandardTrainer

Action = Callable[[Outputs], None]
"""Receives the outputs of a loop or an evaluation."""


@final
class Controller:
    """Trains in loops of some steps, evaluates, saves and resumes (`orbit.Controller`).

    Where the manager's folder has a checkpoint, making a controller restores it. Steps are counted
    from the beginning of the training, not of the program. Instead of Orbit's summaries,
    `dl.record(folder, tensorboard=...)` writes the outputs.

    Args:
      trainer: A `StandardTrainer`, whose steps advance `global_step`.
      evaluator: A `StandardEvaluator`.
      global_step: The variable that counts the steps.
      strategy: The strategy in whose scope checkpoints are restored, and the manager's `init_fn`
        makes variables; by default the current one.
      steps_per_loop: The number of steps between two logs, and two checks whether to save.
      checkpoint_manager: Saves after a loop, when its interval has passed, and at the end. The
        position of the trainer's input is added to its checkpoint.
      train_actions: Functions that are called with the outputs after each loop.
      eval_actions: Functions that are called with the outputs of each evaluation.

    Attributes:
      strategy: The strategy in whose scope checkpoints are restored.
      restored: The path of the checkpoint that was restored; None where there was none.

    Raises:
      ArgumentValueError: There is neither trainer nor evaluator, or an argument is out of range.
      ArgumentTypeError: An argument is something else.
      ContextError: There is a checkpoint manager, and another strategy's scope around this call.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     step = dl.Variable(0)
      >>> class Trainer(dl.StandardTrainer):
      ...     def train_step(self, iterator):
      ...         strategy.run(lambda x: step.assign_add(1), args=(next(iterator),))
      >>> dataset = dl.data.Dataset.range(8).repeat().batch(4)
      >>> manager = dl.train.CheckpointManager(dl.train.Checkpoint(step=step), "model")
      >>> controller = dl.Controller(
      ...     trainer=Trainer(strategy.experimental_distribute_dataset(dataset)),
      ...     global_step=step,
      ...     steps_per_loop=5,
      ...     checkpoint_manager=manager,
      ... )
      >>> controller.train(10)  # doctest: +ELLIPSIS
      train | step 5 | ... steps/s
      train | step 10 | ... steps/s
      >>> int(step), manager.latest_checkpoint.rpartition("/")[2]
      (10, 'ckpt-10')
    """

    def __init__(
        self,
        *,
        global_step: Any,
        trainer: StandardTrainer | None = None,
        evaluator: StandardEvaluator | None = None,
        strategy: Strategy | None = None,
        steps_per_loop: int = 100,
        checkpoint_manager: CheckpointManager | None = None,
        train_actions: Iterable[Action] | None = None,
        eval_actions: Iterable[Action] | None = None,
    ) -> None:
        if trainer is None and evaluator is None:
            raise ArgumentValueError(
                "Controller needs a trainer or an evaluator, and both are None. Pass trainer= or "
                "evaluator=."
            )
        if isinstance(global_step, int | float | np.ndarray | np.generic):
            raise _no_counter(global_step)
        require_count("steps_per_loop", steps_per_loop)
        require_kind("trainer", trainer, StandardTrainer, optional=True)
        require_kind("evaluator", evaluator, StandardEvaluator, optional=True)
        require_kind("strategy", strategy, Strategy, optional=True)
        require_kind("checkpoint_manager", checkpoint_manager, CheckpointManager, optional=True)
        self.strategy = get_strategy() if strategy is None else strategy
        self._trainer, self._evaluator = trainer, evaluator
        self._global_step = global_step
        self._steps_per_loop = steps_per_loop
        self._manager = checkpoint_manager
        self._train_actions = tuple(train_actions or ())
        self._eval_actions = tuple(eval_actions or ())
        self.restored: str | None = None
        _ = self.step  # is a number
        if checkpoint_manager is not None:
            if trainer is not None and hasattr(trainer.train_iterator, "get_state"):
                checkpoint_manager.checkpoint.train_iterator = trainer.train_iterator
            with self.strategy.scope():  # for the variables that `init_fn` makes
                self.restored = checkpoint_manager.restore_or_initialize()

    @property
    def step(self) -> int:
        """The number of steps so far, of earlier programs too."""
        try:
            return int(np.asarray(self._global_step))
        except (TypeError, ValueError) as error:
            raise _no_counter(self._global_step) from error

    def train(self, steps: int, checkpoint_at_completion: bool = True) -> None:
        """Trains until so many steps are taken in all.

        Args:
          steps: The number of steps from the beginning of the training.
          checkpoint_at_completion: Whether to save at the end in any case.

        Raises:
          ArgumentValueError: `steps` is no number of steps, or there is no trainer.
          OutOfRangeError: The data has ended.
          StructureError: The trainer's `train_loop_end` returns something else than a dict or None.
          DistlabError: The trainer's steps do not advance `global_step`.

        Example:
          See `Controller`.
        """
        trainer = self._trainer
        if trainer is None:
            raise ArgumentValueError("Controller.train needs a trainer. Pass trainer=.")
        steps = checked_total("steps", steps)
        while (before := self.step) < steps:
            count = min(self._steps_per_loop, steps - before)
            began = time.monotonic()
            outputs = trainer.train(count)
            if self.step != before + count:
                raise DistlabError(
                    f"The trainer took {count} steps and global_step went from {before} to "
                    f"{self.step}. Advance it by one in each step."
                )
            numbers = _numbers("train_loop_end", outputs)  # waits for the devices
            rate = count / (time.monotonic() - began)
            self.log("train", numbers, f" | {rate:.4g} steps/s")
            for action in self._train_actions:
                action(outputs)
            if self._manager is not None:
                self._manager.save(self.step)
        if self._manager is not None:
            saved = self._manager.latest_checkpoint
            if checkpoint_at_completion and not str(saved).endswith(f"-{self.step}"):
                self._manager.save(self.step, check_interval=False)
            self._manager.sync()

    def evaluate(self, steps: int = -1) -> Outputs:
        """Evaluates.

        Args:
          steps: The number of steps; -1 for all of the data.

        Returns:
          The evaluator's outputs.

        Raises:
          ArgumentValueError: `steps` is neither -1 nor a number of steps, or there is no evaluator.
          InvalidArgumentError: All of the data is to be evaluated, and it has no end.
          StructureError: The evaluator's `eval_end` returns something else than a dict or None.

        Example:
          See `StandardEvaluator`.
        """
        if self._evaluator is None:
            raise ArgumentValueError("Controller.evaluate needs an evaluator. Pass evaluator=.")
        outputs = self._evaluator.evaluate(steps)
        self.log("eval", _numbers("eval_end", outputs))
        for action in self._eval_actions:
            action(outputs)
        return outputs

    def train_and_evaluate(
        self, train_steps: int, eval_steps: int = -1, eval_interval: int | None = None
    ) -> Outputs:
        """Trains, and evaluates every so many steps and at the end.

        Args:
          train_steps: The number of steps from the beginning of the training.
          eval_steps: The number of steps of each evaluation; -1 for all of the data.
          eval_interval: The number of steps from one evaluation to the next; by default there is
            one, at the end.

        Returns:
          The outputs of the last evaluation; None where all steps were taken before.

        Raises:
          ArgumentValueError: A number is none, or out of range.
          StructureError: `train_loop_end` or `eval_end` returns something else than a dict or None.
        """
        require_count("eval_interval", eval_interval, optional=True)
        train_steps = checked_total("train_steps", train_steps)
        outputs: Outputs = None
        while (step := self.step) < train_steps:
            self.train(min(train_steps, step + (eval_interval or train_steps)))
            outputs = self.evaluate(eval_steps)
        return outputs

    def log(self, what: str, numbers: Mapping[str, float], more: str = "") -> None:
        """Prints numbers, and records them as metrics of the step."""
        shown_numbers = "".join(f" | {name} {value:.5g}" for name, value in numbers.items())
        print(f"{what} | step {self.step}{shown_numbers}{more}", flush=True)
        recorder = sink.recorder()
        if recorder.enabled and numbers:
            prefix = "" if what == "train" else f"{what}_"
            values = {f"{prefix}{name}": value for name, value in numbers.items()}
            recorder.emit(events.Metric(time_ns=time.monotonic_ns(), step=self.step, values=values))


def _numbers(returned_by: str, outputs: Any) -> dict[str, float]:
    if outputs is not None and not hasattr(outputs, "items"):
        raise StructureError(
            f"{returned_by} must return a dict of numbers by name, or None, got {shown(outputs)}. "
            "Return for example {'loss': loss}."
        )
    arrays = {name: np.asarray(value) for name, value in (outputs or {}).items()}
    return {
        name: float(array)
        for name, array in arrays.items()
        if array.shape == () and array.dtype.kind in "biuf"
    }


def _no_counter(global_step: Any) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"global_step must be the variable that counts the steps, got {shown(global_step)}. Make "
        "it as dl.Variable(0) in strategy.scope()."
    )
