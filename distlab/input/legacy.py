"""TensorFlow 1's input iterators, which `initialize` starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from distlab.data import Optional
from distlab.errors import ArgumentValueError
from distlab.input.context import InputContext, InputHost
from distlab.input.dataset import DistributedDataset
from distlab.input.distribute import distribute_dataset, steps_from_function
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions, InputReplicationMode
from distlab.text.shown import shown


@final
class InputIterator:
    """An iterator that `initialize` restarts.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> iterator = strategy.make_dataset_iterator(dl.data.Dataset.range(8).batch(4))
      >>> iterator.initialize()
      >>> iterator.get_next().values
      (Array([0, 1], dtype=int32), Array([2, 3], dtype=int32))
    """

    def __init__(self, dataset: DistributedDataset) -> None:
        self._dataset = dataset
        self._iterator: DistributedIterator | None = None

    def initialize(self) -> None:
        """Moves to the beginning."""
        if self._iterator is not None:
            self._iterator.close()
        self._iterator = iter(self._dataset)

    def get_next(self) -> Any:
        """Returns the next element, with a `PerReplica` at each leaf.

        Without `initialize` it starts at the first one, as in TensorFlow's eager
        mode.
        """
        return self._started().get_next()

    def get_next_as_optional(self) -> Optional:
        """Returns the next element, or an empty `Optional` at the end."""
        return self._started().get_next_as_optional()

    @property
    def element_spec(self) -> Any:
        """The nest of specs of its elements; see `DistributedDataset.element_spec`."""
        return self._dataset.element_spec

    def _started(self) -> DistributedIterator:
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        return self._iterator


def dataset_iterator(strategy: InputHost, dataset: Any) -> InputIterator:
    """Divides global batches. See `Strategy.make_dataset_iterator`."""
    return InputIterator(distribute_dataset(strategy, dataset, None))


def input_fn_iterator(
    strategy: InputHost,
    input_fn: Callable[[InputContext], Any],
    replication_mode: InputReplicationMode,
) -> InputIterator:
    """Distributes per-replica batches. See `Strategy.make_input_fn_iterator`."""
    if replication_mode is not InputReplicationMode.PER_WORKER:
        raise ArgumentValueError(
            "make_input_fn_iterator supports InputReplicationMode.PER_WORKER only, got "
            f"{shown(replication_mode)}. Leave it out, or use distribute_datasets_from_function, "
            "which supports PER_REPLICA."
        )
    steps, _ = steps_from_function("input_fn", input_fn, strategy, fills=False)
    return InputIterator(DistributedDataset(steps, strategy, InputOptions()))
