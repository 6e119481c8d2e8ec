"""TensorFlow 1's input iterators, which are started by `initialize`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

from distlab.data import Dataset, Optional
from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.input.context import InputContext
from distlab.input.dataset import DistributedDataset
from distlab.input.distribute import call_for_input, distribute_dataset, replica_steps
from distlab.input.host import InputHost
from distlab.input.iterator import DistributedIterator
from distlab.input.options import InputOptions, InputReplicationMode


@final
class InputIterator:
    """An iterator that `initialize` starts, again and again.

    Args:
      dataset: what it goes over.
    """

    def __init__(self, dataset: DistributedDataset) -> None:
        self._dataset = dataset
        self._iterator: DistributedIterator | None = None

    def initialize(self) -> None:
        """Goes to the beginning."""
        if self._iterator is not None:
            self._iterator.close()
        self._iterator = iter(self._dataset)

    def get_next(self) -> Any:
        """Returns the next element, with a `PerReplica` at each leaf.

        Without `initialize` it begins with the first one, as TensorFlow does
        when it executes eagerly.

        Raises:
          OutOfRangeError: the data came to its end.
          IteratorContextError: called inside a function that `run` executes.
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
    """Lets replicas take batches. See `Strategy.make_input_fn_iterator`."""
    if replication_mode is not InputReplicationMode.PER_WORKER:
        raise ArgumentValueError(
            "make_input_fn_iterator supports InputReplicationMode.PER_WORKER only, got "
            f"{replication_mode!r}. distribute_datasets_from_function supports PER_REPLICA."
        )
    made = call_for_input("input_fn", input_fn, strategy.input_context)
    if callable(made) and not isinstance(made, Dataset):
        made = _Calls(made)
    elif not hasattr(made, "__iter__"):
        raise ArgumentTypeError(
            "input_fn must return a dataset, or a function that returns one replica's next "
            f"element, got {type(made).__name__}."
        )
    steps = replica_steps([made], strategy.mesh.replicas, fills=False)
    return InputIterator(DistributedDataset(steps, strategy, InputOptions()))


class _Calls:
    """What a function returns when it is called again and again, without end."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield self._function()
