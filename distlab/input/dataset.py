"""A dataset whose batches are divided over a strategy's replicas."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, Final, final

from distlab.data.plan.arguments import no_end
from distlab.errors import ArgumentTypeError, IteratorContextError
from distlab.input.batches import Batches
from distlab.input.context import InputHost
from distlab.input.iterator import DistributedIterator, Distribution
from distlab.input.options import InputOptions
from distlab.input.preview import Previewer
from distlab.text.shown import shown
from distlab.user_code import calling_line

numbers: Final = itertools.count()
"""Numbers of datasets in events."""


@final
class DistributedDataset:
    """An iterable of the replicas' input, step by step (`tf.distribute.DistributedDataset`).

    Make one with `strategy.experimental_distribute_dataset` or
    `strategy.distribute_datasets_from_function`. Each `iter()` starts from the
    beginning.

    Args:
      batches: The source of its steps.
      strategy: The strategy whose replicas receive its elements.
      options: The options with which it was distributed.
      name: The name that its options give it, else empty.

    Attributes:
      batches: The source of its steps.
      strategy: The strategy whose replicas receive its elements.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(6).batch(4)
      >>> for batch in strategy.experimental_distribute_dataset(dataset):
      ...     print([part.tolist() for part in batch.values])
      [[0, 1], [2, 3]]
      [[4], [5]]
    """

    def __init__(
        self, batches: Batches, strategy: InputHost, options: InputOptions, name: str = ""
    ) -> None:
        number = next(numbers)
        self.batches = batches
        self.strategy = strategy
        self._distribution = Distribution(
            number, batches, strategy, options, Previewer(number), calling_line(), name
        )
        self._epochs = itertools.count()

    def __iter__(self) -> DistributedIterator:
        """Starts an epoch."""
        if not self.strategy.reads_here:
            raise IteratorContextError(
                f"The datasets of a {type(self.strategy).__name__} are read by its workers, and "
                "this thread is none. Pass the dataset, or a function that makes it, to "
                "ClusterCoordinator.create_per_worker_dataset, and iter() of that to schedule."
            )
        return DistributedIterator(self._distribution, next(self._epochs))

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Folds the elements of an epoch into one value.

        Args:
          initial_state: The first value.
          reduce_func: Returns the next value from the value so far and an element.
            It runs as ordinary Python in cross-replica context, so it may call
            `strategy.run`.

        Returns:
          The last value.

        Raises:
          ArgumentTypeError: `reduce_func` is not a function.
          InvalidArgumentError: The data has no end.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(6).batch(4)
          >>> batches = strategy.experimental_distribute_dataset(dataset)
          >>> int(batches.reduce(0, lambda sum, x: sum + strategy.reduce("SUM", x, axis=0)))
          15
        """
        if not callable(reduce_func):
            raise ArgumentTypeError(
                "reduce_func must be a function of the value so far and an element, got "
                f"{shown(reduce_func)}. Write for example lambda count, element: count + 1."
            )
        if self.batches.endless:
            raise no_end("reduce")
        return functools.reduce(reduce_func, self, initial_state)

    @property
    def element_spec(self) -> Any:
        """The nest of `PerReplicaSpec` of its elements; with one replica, plain specs.

        A first dimension is None where the replicas may have different numbers of
        examples.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(8).batch(4, drop_remainder=True)
          >>> strategy.experimental_distribute_dataset(dataset).element_spec.value_specs[0]
          TensorSpec(shape=(2,), dtype=dtype('int64'))
        """
        return self._distribution.element_spec

    def __len__(self) -> int:
        """Returns the number of steps in an epoch."""
        return len(self.batches)

    def __bool__(self) -> bool:
        """Returns True, whatever the length."""
        return True

    def _repr_html_(self) -> str:
        """Shows each replica's part in notebooks."""
        from distlab.values.reprs import dataset_html

        return dataset_html(self)

    def __repr__(self) -> str:
        """Names the source and the strategy."""
        return f"DistributedDataset({self.batches!r}, {self.strategy!r})"
