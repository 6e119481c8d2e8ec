"""The iterator over a distributed dataset, which emits how each batch was divided."""

from __future__ import annotations

import threading
import time
from typing import Any, Final, NamedTuple, final

import jax
import numpy as np

from distlab import events
from distlab.context import scopes
from distlab.data import Optional
from distlab.data.plan.engine import State
from distlab.data.plan.resumable import Resumable
from distlab.data.transforms.prefetch import PrefetchReader
from distlab.devices import jax_internals
from distlab.errors import (
    InvalidArgumentError,
    IteratorContextError,
    OutOfRangeError,
)
from distlab.events import sink
from distlab.events.positions import packed
from distlab.input.batches import Batches
from distlab.input.context import InputHost
from distlab.input.feed import Feed, PlacedStep
from distlab.input.options import InputOptions
from distlab.input.preview import Previewer, Repeats
from distlab.input.spec import per_replica_spec
from distlab.text.shown import shown
from distlab.values.distributed import PerReplica

_MOST_INDICES: Final = 65_536
_WAIT_SECONDS: Final = 0.5
"""The time that a thread which reads ahead has to end."""


class Distribution(NamedTuple):
    """The steps of a distributed dataset, and the strategy whose replicas receive them.

    Events name its number in this process, the line that distributed it, and its options' name.
    """

    number: int
    batches: Batches
    host: InputHost
    options: InputOptions
    previewer: Previewer
    source: str
    name: str

    @property
    def element_spec(self) -> Any:
        """The nest of `PerReplicaSpec` of its elements; with one local replica, plain specs."""
        return per_replica_spec(self.batches.local_spec, len(self.host.mesh.local_replicas))


@final
class DistributedIterator(Resumable):
    """One epoch of a distributed dataset (`tf.distribute.DistributedIterator`).

    Threads that share it get each batch once. After an interrupt the next batch is the one that it
    met, if the data can be read again.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(8).batch(4)
      >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
      >>> strategy.run(lambda x: x.sum(), args=(next(iterator),)).values
      (Array(1, dtype=int32), Array(5, dtype=int32))
    """

    def __init__(self, distribution: Distribution, epoch: int) -> None:
        self._distribution = distribution
        self._lock = threading.RLock()
        self._strategy = distribution.host
        self._epoch = epoch
        self._batch = 0
        self._nominal = distribution.batches.nominal or 0
        self._ended = False
        self._before: State | None = None
        self._repeats = Repeats()
        self._feed = _open_feed(distribution)

    def __iter__(self) -> DistributedIterator:
        """Returns itself."""
        return self

    def __next__(self) -> Any:
        """Returns the next element, with a `PerReplica` at each leaf; an array with one replica."""
        return self._next(fill=self._distribution.batches.fills)

    def next(self) -> Any:
        """Returns the next element: `next(iterator)`, as a method of TensorFlow's iterators."""
        return next(self)

    def get_next(self) -> Any:
        """Returns the next element, as `next()` does.

        Raises:
          OutOfRangeError: The data is exhausted.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(8).batch(4)
          >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
          >>> iterator.get_next().values
          (Array([0, 1], dtype=int32), Array([2, 3], dtype=int32))
        """
        try:
            return next(self)
        except StopIteration:
            raise OutOfRangeError(
                f"The dataset ended after {self._batch} batches. Stop the loop there, or call "
                "repeat() on the dataset."
            ) from None

    def get_next_as_optional(self) -> Optional:
        """Returns the next element, or an empty `Optional` at the end.

        As in TensorFlow, a last step in which some replicas have no batch is
        returned even where `next()` leaves it out.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(4).batch(4)
          >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
          >>> [iterator.get_next_as_optional().has_value() for _ in range(2)]
          [True, False]
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

        It can be saved with a checkpoint, and restored in any process into an iterator over
        a dataset that was made and distributed in the same way, over any number of replicas
        or, where batches are global, over none.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(8).batch(4)
          >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
          >>> _ = next(iterator)
          >>> iterator.state()["batch"]
          1
        """
        with self._lock:
            reader = self._feed.get_state() if self._before is None else self._before
            return {"batch": self._batch, "ended": self._ended, "reader": reader}

    def restore(self, state: State) -> None:
        """Moves to a position.

        A position counts the elements that were read, so a dataset whose batch size, functions or
        data changed since continues after as many: only other shuffles, other operations and the
        end of the data are found.

        Args:
          state: The result of `state()`.

        Raises:
          InvalidArgumentError: The position belongs to a dataset of other operations, to one that
            is shuffled or distributed in another way, or to a longer one.

        Example:
          >>> import distlab as dl
          >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
          >>> dataset = dl.data.Dataset.range(8).batch(4)
          >>> iterator = iter(strategy.experimental_distribute_dataset(dataset))
          >>> start = iterator.state()
          >>> first = next(iterator)
          >>> iterator.restore(start)
          >>> next(iterator).values[0].tolist() == first.values[0].tolist()
          True
        """
        position: Any = state
        if isinstance(position, dict) and set(position) == {"shuffles", "reader"}:
            position = {"batch": 0, "ended": False, "reader": position}  # of a plain iterator
        if not isinstance(position, dict) or set(position) != {"batch", "ended", "reader"}:
            raise InvalidArgumentError(
                "The position of a distributed iterator must be what its state() returned, got "
                f"{shown(state)}. Save state() before the step at which to resume."
            )
        with self._lock:
            self._feed.set_state(position["reader"])
            self._before = None
            self._batch, self._ended = position["batch"], position["ended"]

    def close(self) -> None:
        """Stops reading ahead. Dropping the iterator does the same.

        One that reads ahead (`experimental_per_replica_buffer_size`) has ended then; others go on
        with the next element, if they are read on.
        """
        self._feed.close()

    def _next(self, *, fill: bool) -> Any:
        self._require_cross_replica()
        before = None
        try:
            with self._lock:
                if self._ended:
                    raise StopIteration
                if self._before is not None:
                    if self._distribution.batches.rereadable:
                        self._feed.set_state(self._before)
                    self._before = None
                before, batch = self._feed.get_state(), self._batch
                value = self._read(fill=fill)
        except BaseException as error:
            # An interrupt may also come where the lock is left: nobody has the batch then.
            if not isinstance(error, Exception) and before is not None:
                self._before, self._batch = before, batch
            raise
        return value

    def _read(self, *, fill: bool) -> Any:
        asked = time.monotonic_ns()
        placed: PlacedStep = next(self._feed)
        if isinstance(self._feed, PrefetchReader):  # the times of its thread are nobody's
            placed = placed._replace(wait_ns=time.monotonic_ns() - asked, transfer_ns=0)
        if not (placed.step.complete or fill):
            self._ended = True
            raise StopIteration
        self._nominal = max(self._nominal, placed.step.sizes[0])
        _record_batch(self._strategy, placed)
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
                "A distributed iterator returns the batches of all replicas, so next() can't be "
                "called inside a function that one replica runs. Call it outside: "
                "strategy.run(fn, args=(next(iterator),))."
            )
        scopes.require_cross_replica("next() of a distributed iterator", strategy)
        if jax_internals.being_staged() and scopes.merging() is None:
            raise IteratorContextError(
                "next() of a distributed iterator was called inside jax.jit, which would read one "
                "batch and compile it in. Pass the batch to the function as an argument."
            )

    def _report(self, recorder: sink.Recorder, placed: PlacedStep) -> None:
        """Emits how the batch was divided, and previews of its examples."""
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
                **packed(indices if indices is None or len(indices) <= _MOST_INDICES else None),
                bytes=step.bytes,
                wait_ns=placed.wait_ns,
                transfer_ns=placed.transfer_ns,
                policy=self._distribution.batches.policy,
                source=self._distribution.source,
                name=self._distribution.name,
                repeated=self._repeats.count(step.columns, step.sizes, self._batch),
            )
        )
        self._distribution.previewer.show(recorder, step.columns, indices, self._epoch, self._batch)


def _open_feed(distribution: Distribution) -> Feed | PrefetchReader:
    """Opens the steps, read on demand or ahead.

    Ahead gains where a program waits for each step (7.7 ms became 5.3), and costs a little else.
    """
    options = distribution.options
    fetch = bool(
        options.experimental_fetch_to_device or options.experimental_place_dataset_on_device
    )

    def open_one() -> Feed:
        return Feed(distribution.batches.open(), distribution.host.mesh, fetch=fetch)

    size = max(options.experimental_per_replica_buffer_size, distribution.batches.least_ahead)
    return PrefetchReader(open_one, size, _WAIT_SECONDS) if size > 1 else open_one()


def _record_batch(host: InputHost, placed: PlacedStep) -> None:
    """Records the batch as the strategy's last one, from which a step counts its examples."""
    for leaf in placed.leaves:
        array = leaf.stacked if isinstance(leaf, PerReplica) else leaf
        if isinstance(array, jax.Array | np.ndarray):
            host.batch.set(array, sum(placed.step.sizes))
            return
