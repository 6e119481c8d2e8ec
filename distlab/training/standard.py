"""What a `Controller` runs: trainers and evaluators, in the manner of Orbit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from distlab.errors import OutOfRangeError
from distlab.training.checks import require_count, require_iterable

Outputs = dict[str, Any] | None
"""Results by name: numbers, or arrays of shape ()."""


class StandardTrainer(ABC):
    """Takes steps over a dataset (`orbit.StandardTrainer`).

    A subclass implements `train_step`. Its input goes on where it was from one `train` to the
    next; a `Controller` with a checkpoint manager saves its position, too.

    Args:
      train_dataset: An iterable of elements, such as a distributed dataset that repeats.

    Attributes:
      train_iterator: The iterator over it.

    Raises:
      ArgumentTypeError: `train_dataset` is no iterable of batches.

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
        require_iterable("train_dataset", train_dataset)
        self.train_iterator: Iterator[Any] = iter(train_dataset)

    @abstractmethod
    def train_step(self, iterator: Iterator[Any]) -> None:
        """Takes one step, with the next element of an iterator."""

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

    A subclass implements `eval_step`. Each `evaluate` starts from the beginning of the data.

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
      ...         self.total = 0
      ...     def eval_step(self, iterator):
      ...         self.total += int(strategy.reduce("SUM", next(iterator), axis=0))
      ...     def eval_end(self):
      ...         return {"total": self.total}
      >>> Evaluator().evaluate(), Evaluator().evaluate(1)
      ({'total': 10}, {'total': 1})
    """

    def __init__(self, eval_dataset: Iterable[Any]) -> None:
        require_iterable("eval_dataset", eval_dataset)
        self.eval_dataset = eval_dataset

    @abstractmethod
    def eval_step(self, iterator: Iterator[Any]) -> None:
        """Evaluates the next element of an iterator."""

    def eval_begin(self) -> None:  # noqa: B027 - need not be overridden
        """Is called before the first step, to reset metrics for example."""

    def eval_end(self) -> Outputs:
        """Is called after the last step, and returns metrics."""
        return None

    def evaluate(self, num_steps: int = -1) -> Outputs:
        """Evaluates the data, or its beginning.

        Args:
          num_steps: The number of steps; -1 for all.

        Returns:
          The result of `eval_end`.
        """
        if num_steps != -1:
            require_count("num_steps", num_steps)
        self.eval_begin()
        iterator, taken = iter(self.eval_dataset), 0
        while taken != num_steps:
            try:
                self.eval_step(iterator)
            except StopIteration:
                break
            taken += 1
        return self.eval_end()
