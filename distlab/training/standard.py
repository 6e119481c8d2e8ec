"""Trainers and evaluators for a `Controller`, in the manner of Orbit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from distlab.errors import OutOfRangeError
from distlab.training.checks import require_count, require_end

Outputs = dict[str, Any] | None
"""Results by name: numbers, or arrays of shape ()."""


class StandardTrainer(ABC):
    """Takes steps over a dataset (`orbit.StandardTrainer`).

    A subclass implements `train_step`. Its input continues from one `train` to the next; a
    `Controller` with a checkpoint manager saves its position, too.

    Args:
      train_dataset: An iterable of elements, such as a distributed dataset that repeats.

    Attributes:
      train_iterator: The iterator over it.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> class Trainer(dl.StandardTrainer):
      ...     def __init__(self):
      ...         batches = dl.data.Dataset.range(8).repeat().batch(4)
      ...         super().__init__(strategy.experimental_distribute_dataset(batches))
      ...         with strategy.scope():
      ...             self.global_step = dl.Variable(0)
      ...     def train_step(self, iterator):
      ...         strategy.run(lambda x: self.global_step.assign_add(1), args=(next(iterator),))
      ...     def train_loop_end(self):
      ...         return {"steps": int(self.global_step)}
      >>> Trainer().train(3)
      {'steps': 3}
    """

    def __init__(self, train_dataset: Iterable[Any]) -> None:
        self.train_iterator: Iterator[Any] = iter(train_dataset)

    @abstractmethod
    def train_step(self, iterator: Iterator[Any]) -> None:
        """Takes one step, with the next element of an iterator.

        At the end of the data it lets the `StopIteration` of `next(iterator)` through.

        Args:
          iterator: The iterator over the data.
        """

    def train_loop_begin(self) -> None:  # noqa: B027 - need not be overridden
        """Is called before the first of several steps, to reset metrics for example."""

    def train_loop_end(self) -> Outputs:
        """Is called after the last of several steps, and returns metrics."""
        return None

    def train(self, num_steps: int) -> Outputs:
        """Takes a number of steps.

        Args:
          num_steps: The number.

        Returns:
          The result of `train_loop_end`.

        Raises:
          OutOfRangeError: The dataset has ended.
        """
        require_count("num_steps", num_steps)
        self.train_loop_begin()
        for number in range(num_steps):
            try:
                self.train_step(self.train_iterator)
            except StopIteration:
                raise OutOfRangeError(
                    f"The training data ended after {number} of {num_steps} steps. Call repeat() "
                    "on the dataset, or train fewer steps."
                ) from None
        return self.train_loop_end()


class StandardEvaluator(ABC):
    """Evaluates over a dataset (`orbit.StandardEvaluator`).

    A subclass implements `eval_step`. Each `evaluate` starts from the beginning of the data. What
    the steps find is kept in attributes or metrics; or `eval_reduce` joins each step's result to a
    state, which begins with the result of `eval_begin` and ends as the argument of `eval_end`.

    Args:
      eval_dataset: An iterable of elements, such as a distributed dataset.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> class Evaluator(dl.StandardEvaluator):
      ...     def __init__(self):
      ...         batches = dl.data.Dataset.range(5).batch(2)
      ...         super().__init__(strategy.experimental_distribute_dataset(batches))
      ...     def eval_begin(self):
      ...         return 0
      ...     def eval_step(self, iterator):
      ...         return int(strategy.reduce("SUM", next(iterator), axis=0))
      ...     def eval_reduce(self, state, step_outputs):
      ...         return state + step_outputs
      ...     def eval_end(self, total):
      ...         return {"total": total}
      >>> Evaluator().evaluate(), Evaluator().evaluate(1)
      ({'total': 10}, {'total': 1})
    """

    def __init__(self, eval_dataset: Iterable[Any]) -> None:
        self.eval_dataset = eval_dataset

    @abstractmethod
    def eval_step(self, iterator: Iterator[Any]) -> Any:
        """Evaluates the next element of an iterator.

        At the end of the data it lets the `StopIteration` of `next(iterator)` through: an
        evaluation of all data ends by it alone.

        Args:
          iterator: The iterator over the data.

        Returns:
          The `step_outputs` of `eval_reduce`.
        """

    def eval_begin(self) -> Any:
        """Is called before the first step, to reset metrics for example.

        Returns:
          The state that the first `eval_reduce` receives.
        """
        return None

    def eval_reduce(self, state: Any = None, step_outputs: Any = None) -> Any:  # noqa: ARG002
        """Is called after each step, and joins its result to the state.

        Args:
          state: The result of the call before; at the first step that of `eval_begin`.
          step_outputs: The result of `eval_step`.

        Returns:
          The new state; None, as by default, where there is none to keep.
        """
        return None

    # Orbit has `*args` alone. With `**kwargs` type checkers accept every form of an override.
    def eval_end(self, *args: Any, **kwargs: Any) -> Outputs:  # noqa: ARG002
        """Is called after the last step, and returns metrics.

        Args:
          *args: The state, unless it is None: then there is no argument.
          **kwargs: Not used.
        """
        return None

    def evaluate(self, num_steps: int = -1) -> Outputs:
        """Evaluates the data, or its beginning.

        Args:
          num_steps: The number of steps; -1 for all.

        Returns:
          The result of `eval_end`.

        Raises:
          ArgumentValueError: `num_steps` is neither -1 nor a number of steps.
          InvalidArgumentError: All of the data is to be evaluated, and it has no end.
        """
        if num_steps != -1:
            require_count("num_steps", num_steps)
        else:
            require_end(self.eval_dataset)
        state = self.eval_begin()
        iterator, taken = iter(self.eval_dataset), 0
        while taken != num_steps:
            try:
                outputs = self.eval_step(iterator)
            except (StopIteration, OutOfRangeError):  # of `next`, and of `get_next`
                break
            state = self.eval_reduce(state, outputs)
            taken += 1
        return self.eval_end() if state is None else self.eval_end(state)
