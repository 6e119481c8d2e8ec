"""Walking over a distributed dataset, and saying how each batch was divided."""

from __future__ import annotations

import time
from typing import Any, Final, final

import jax
import numpy as np

from distlab import events
from distlab.context import scopes
from distlab.data import Optional
from distlab.data._engine import State
from distlab.errors import InvalidArgumentError, IteratorContextError, OutOfRangeError
from distlab.events import sink
from distlab.input._ahead import AheadFeed
from distlab.input._distribution import Distribution
from distlab.input._placed import DirectFeed, Feed, Placed
from distlab.input.host import InputHost
from distlab.values.distributed import PerReplica

_MOST_INDICES: Final = 65_536


@final
class DistributedIterator:
    """One epoch of a distributed dataset (`tf.distribute.DistributedIterator`)."""

    def __init__(self, distribution: Distribution, epoch: int) -> None:
        self._distribution = distribution
        self._strategy = distribution.host
        self._epoch = epoch
        self._batch = 0
        self._nominal = distribution.steps.nominal or 0
        self._ended = False
        self._feed = _open_feed(distribution)

    def __iter__(self) -> DistributedIterator:
        """Returns itself."""
        return self

    def __next__(self) -> Any:
        """Returns the next element, with a `PerReplica` at each leaf.

        With one replica the leaves are plain arrays, on its device.

        Raises:
          StopIteration: the data came to its end.
          IteratorContextError: called inside a function that `run` executes.
          NotBatchedError: the element has no batch dimension to divide.
          ValueShapeError: its components have different batch dimensions.
        """
        return self._next(fill=self._distribution.steps.fills)

    def get_next(self) -> Any:
        """Returns the next element, as `next()` does.

        Raises:
          OutOfRangeError: the data came to its end.
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(
                f"The dataset came to its end after {self._batch} batches. Stop the loop there, or "
                "repeat() the dataset."
            ) from None

    def get_next_as_optional(self) -> Optional:
        """Returns the next element, or an empty `Optional` at the end.

        As in TensorFlow it also gives a last step for which some replicas have
        no batch where `next()` leaves it out: see `ReplicaBatches`.
        """
        try:
            return Optional.from_value(self._next(fill=True))
        except StopIteration:
            return Optional.empty()

    @property
    def element_spec(self) -> Any:
        """The nest of specs of its elements; see `DistributedDataset.element_spec`."""
        return self._distribution.element_spec

    def state(self) -> State:
        """Returns the position: a dict of lists, strings and numbers.

        It can be kept beside a checkpoint, and fits an iterator over any
        dataset that was made and distributed in the same way, in any process.
        """
        return {"batch": self._batch, "ended": self._ended, "reader": self._feed.get_state()}

    def restore(self, state: State) -> None:
        """Goes to a position, so that the next element is the one that followed it.

        Args:
          state: what `state()` returned.

        Raises:
          InvalidArgumentError: it belongs to a dataset made or distributed in
            another way.
        """
        given: Any = state
        if not isinstance(given, dict) or set(given) != {"batch", "ended", "reader"}:
            raise InvalidArgumentError(
                "The position of a distributed iterator is what its state() returned, got "
                f"{state!r:.80}."
            )
        self._feed.set_state(state["reader"])
        self._batch, self._ended = state["batch"], state["ended"]

    def close(self) -> None:
        """Stops reading ahead. Dropping the iterator does the same."""
        self._feed.close()

    def _next(self, *, fill: bool) -> Any:
        self._require_cross_replica()
        if self._ended:
            raise StopIteration
        placed = next(self._feed)
        if not (placed.step.complete or fill):
            self._ended = True
            raise StopIteration
        self._nominal = max(self._nominal, placed.step.sizes[0])
        _feed_arrays(self._strategy, placed)
        recorder = sink.recorder()
        if recorder.enabled:
            self._report(recorder, placed)
        self._batch += 1
        return placed.value

    def _require_cross_replica(self) -> None:
        strategy = self._strategy
        if (
            strategy.distributed
            and scopes.current_strategy() is strategy
            and not scopes.in_cross_replica_context()
        ):
            raise IteratorContextError(
                "A distributed iterator gives the batches of all replicas, so its next element "
                "can't be taken inside a function that one replica runs. Take it outside: "
                "strategy.run(fn, args=(next(iterator),))."
            )
        scopes.require_cross_replica("next() of a distributed iterator", strategy)

    def _report(self, recorder: sink.Recorder, placed: Placed) -> None:
        """Emits how the batch was divided, and what its examples look like."""
        step, indices = placed.step, placed.step.indices
        recorder.emit(
            events.Sharding(
                time_ns=time.monotonic_ns(),
                strategy=self._strategy.number,
                dataset=self._distribution.number,
                batch=self._batch,
                epoch=self._epoch,
                sizes=step.sizes,
                nominal=self._nominal,
                indices=None
                if indices is None or len(indices) > _MOST_INDICES
                else np.ascontiguousarray(indices, "<i8").tobytes(),
                bytes=step.bytes,
                wait_ns=placed.wait_ns,
                transfer_ns=placed.transfer_ns,
                policy=self._distribution.steps.policy,
            )
        )
        self._distribution.previewer.show(recorder, step.columns, indices, self._epoch, self._batch)


def _open_feed(distribution: Distribution) -> Feed:
    options = distribution.options
    fetch = options.experimental_fetch_to_device or options.experimental_place_dataset_on_device

    def open_direct() -> DirectFeed:
        return DirectFeed(distribution.steps.open(), distribution.host.mesh, fetch=fetch)

    size = options.experimental_per_replica_buffer_size
    return AheadFeed(open_direct, size) if size > 1 else open_direct()


def _feed_arrays(host: InputHost, placed: Placed) -> None:
    """Notes which batch the strategy gave out, so that a step can say how much it works on."""
    for leaf in placed.leaves:
        array = leaf.stacked if isinstance(leaf, PerReplica) else leaf
        if isinstance(array, jax.Array | np.ndarray):
            host.batch.set(array, sum(placed.step.sizes))
            return
