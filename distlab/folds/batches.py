"""How each global batch was divided over the replicas, and its examples."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import ClassVar, NamedTuple, TypedDict

import numpy as np

from distlab.events import Event, Preview, Sharding, Strategy
from distlab.folds._fold import replica_names
from distlab.folds._previews import Previews
from distlab.folds.arrays import Flags, Floats, Ints, Pixels

_MOST_BYTES = 32 * 2**20
_OVERHEAD_BYTES = 400


class BatchColumns(TypedDict):
    """Columns of `Batches`: one row for each kept batch, oldest first.

    Attributes:
      number: Numbers of the batches in this recording.
      epoch: Epochs, as the `Sharding` events state.
      batch: Numbers of the batches in their epochs.
      examples: How many examples each global batch has.
      uneven: Whether some replica received fewer examples than its share.
      wait_ms: Milliseconds spent on waiting for the source.
      transfer_ms: Milliseconds spent on transferring the batch to the devices.
      count: How many batches there were.
      forgotten: How many of them are not kept.
      total_bytes: Bytes of all batches, the forgotten ones included.
      total_wait_s: Seconds spent on waiting for all of them.
    """

    number: Ints
    epoch: Ints
    batch: Ints
    examples: Ints
    uneven: Flags
    wait_ms: Floats
    transfer_ms: Floats
    count: int
    forgotten: int
    total_bytes: int
    total_wait_s: float


class BatchDetail(TypedDict):
    """One batch as the replicas received it.

    Attributes:
      number: Number of the batch in this recording.
      epoch: Its epoch.
      batch: Its number in the epoch.
      nominal: How many examples a full batch has for each replica.
      policy: `"rebatch"` or `"per_replica"`.
      bytes: Bytes of all examples.
      wait_ms: Milliseconds spent on waiting for the source.
      transfer_ms: Milliseconds spent on transferring it to the devices.
      replica: Names of the replicas' devices.
      size: How many examples each replica received.
      whole_size: How many examples the whole batch has when this is a part of it,
        else None.
      index: Position of each example in the source, in the order of division; None
        when the source has no positions.
      form: `"image"`, `"numbers"`, or empty when no example has a preview.
      pixels: Previews of the examples, `(examples, *shape)`; zeros where unknown.
      known: Whether each example has a preview.
      label: A short label for each example, empty when there is none.
    """

    number: int
    epoch: int
    batch: int
    nominal: int
    policy: str
    bytes: int
    wait_ms: float
    transfer_ms: float
    replica: list[str]
    size: list[int]
    whole_size: int | None
    index: Ints | None
    form: str
    pixels: Pixels
    known: Flags
    label: list[str]


class _Batch(NamedTuple):
    number: int
    event: Sharding

    @property
    def cost(self) -> int:
        """Bytes of memory that keeping it needs, approximately."""
        return _OVERHEAD_BYTES + len(self.event.indices or b"") + 8 * len(self.event.sizes)

    @property
    def uneven(self) -> bool:
        """Whether some replica received another number of examples than from a full batch."""
        return any(size != self.event.nominal for size in self.event.sizes)


class _Table:
    """The kept batches' columns, as arrays that grow; rebuilt only when batches are forgotten."""

    def __init__(self, batches: Iterable[_Batch] = ()) -> None:
        self._number = array("q")
        self._epoch = array("q")
        self._batch = array("q")
        self._examples = array("q")
        self._uneven = array("b")
        self._wait_ms = array("d")
        self._transfer_ms = array("d")
        for batch in batches:
            self.add(batch)

    def add(self, batch: _Batch) -> None:
        event = batch.event
        self._number.append(batch.number)
        self._epoch.append(event.epoch)
        self._batch.append(event.batch)
        self._examples.append(sum(event.sizes))
        self._uneven.append(batch.uneven)
        self._wait_ms.append(event.wait_ns / 1e6)
        self._transfer_ms.append(event.transfer_ns / 1e6)

    def columns(self, count: int, total_bytes: int, wait_ns: int) -> BatchColumns:
        # By way of bytes: an array that lends its buffer cannot grow meanwhile.
        return {
            "number": np.frombuffer(self._number.tobytes(), np.int64),
            "epoch": np.frombuffer(self._epoch.tobytes(), np.int64),
            "batch": np.frombuffer(self._batch.tobytes(), np.int64),
            "examples": np.frombuffer(self._examples.tobytes(), np.int64),
            "uneven": np.frombuffer(self._uneven.tobytes(), np.bool_),
            "wait_ms": np.frombuffer(self._wait_ms.tobytes(), np.float64),
            "transfer_ms": np.frombuffer(self._transfer_ms.tobytes(), np.float64),
            "count": count,
            "forgotten": count - len(self._number),
            "total_bytes": total_bytes,
            "total_wait_s": wait_ns / 1e9,
        }


class Batches:
    """Every batch that was divided, numbered from 0 in the order of arrival.

    Memory is bounded: when batches need more than 32 MB, every second batch of the
    older half is forgotten, uneven ones last.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Strategy, Sharding, Preview)

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """Keeps about `most_bytes` of batches, not counting previews."""
        self.version = 0
        self._most_bytes = most_bytes
        self._bytes = 0
        self._count = 0
        self._total_bytes = self._wait_ns = 0
        self._kept: dict[int, _Batch] = {}
        self._table = _Table()
        self._previews = Previews()
        self._devices: dict[int, list[str]] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            match event:
                case Sharding():
                    self._add_batch(event)
                case Preview():
                    self._previews.add(event)
                case Strategy():
                    self._devices[event.strategy] = event.devices
                case _:
                    pass
        self.version += bool(events)

    def _add_batch(self, event: Sharding) -> None:
        batch = _Batch(self._count, event)
        self._kept[self._count] = batch
        self._table.add(batch)
        self._count += 1
        self._total_bytes += event.bytes
        self._wait_ns += event.wait_ns
        self._bytes += batch.cost
        if self._bytes > self._most_bytes:
            self._forget()

    def _forget(self) -> None:
        older = list(self._kept.values())[: len(self._kept) // 2]
        even = [batch for batch in older if not batch.uneven]
        for batch in even[1::2] or older[1::2]:
            del self._kept[batch.number]
            self._bytes -= batch.cost
        self._table = _Table(self._kept.values())

    def columns(self) -> BatchColumns:
        """Returns the batches of all events so far."""
        return self._table.columns(self._count, self._total_bytes, self._wait_ns)

    def detail(self, number: int | None = None) -> BatchDetail | None:
        """Returns one batch as the replicas received it.

        Args:
          number: Number of the batch; None for the newest. For a batch that has not
            arrived it is the newest, for a forgotten one the nearest before it.

        Returns:
          The batch, None before the first one.
        """
        batch = self._nearest(number)
        if batch is None:
            return None
        event = batch.event
        examples = sum(event.sizes)
        positions = None if event.indices is None else np.frombuffer(event.indices, "<i8")
        if positions is not None and len(positions) != examples:
            positions = None  # they are not those of these examples
        pictures = self._previews.find(
            event.dataset,
            event.batch,
            event.epoch,
            None if positions is None else positions.tolist(),
            examples,
        )
        return {
            "number": batch.number,
            "epoch": event.epoch,
            "batch": event.batch,
            "nominal": event.nominal,
            "policy": event.policy,
            "bytes": event.bytes,
            "wait_ms": event.wait_ns / 1e6,
            "transfer_ms": event.transfer_ns / 1e6,
            "replica": replica_names(self._devices.get(event.strategy, []), len(event.sizes)),
            "size": list(event.sizes),
            "whole_size": None,
            "index": positions,
            "form": pictures.form,
            "pixels": pictures.pixels,
            "known": pictures.known,
            "label": pictures.labels,
        }

    def _nearest(self, number: int | None) -> _Batch | None:
        if not self._kept:
            return None
        if number in self._kept:
            return self._kept[number]
        newest = next(reversed(self._kept))
        if number is None or number > newest:
            return self._kept[newest]
        before = [kept for kept in self._kept if kept < number]
        return self._kept[before[-1] if before else next(iter(self._kept))]
