"""How each global batch was divided over the replicas, and what was in it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from distlab.events import Event, Preview, Run, Sharding, Strategy
from distlab.folds._fold import Clock, Columns
from distlab.folds._previews import Previews

_MOST_BYTES = 32 * 2**20
_OVERHEAD_BYTES = 400
_KINDS_OF_COLUMNS = {
    "number": "q",
    "time_s": "d",
    "dataset": "q",
    "epoch": "q",
    "batch": "q",
    "examples": "q",
    "uneven": "b",
    "wait_ms": "d",
    "transfer_ms": "d",
}


class _Batch(NamedTuple):
    number: int
    time_s: float
    event: Sharding

    @property
    def cost(self) -> int:
        """Bytes of memory that keeping it takes, about."""
        return _OVERHEAD_BYTES + len(self.event.indices or b"") + 8 * len(self.event.sizes)

    @property
    def uneven(self) -> bool:
        """Whether some replica got another number of examples than a full batch gives."""
        return any(size != self.event.nominal for size in self.event.sizes)


class _Table:
    """The kept batches' columns, as arrays that grow: made anew only when some are forgotten."""

    def __init__(self, batches: Iterable[_Batch] = ()) -> None:
        self._columns: dict[str, array[Any]] = {
            name: array(kind) for name, kind in _KINDS_OF_COLUMNS.items()
        }
        for batch in batches:
            self.add(batch)

    def add(self, batch: _Batch) -> None:
        event = batch.event
        row = (
            batch.number,
            batch.time_s,
            event.dataset,
            event.epoch,
            event.batch,
            sum(event.sizes),
            batch.uneven,
            event.wait_ns / 1e6,
            event.transfer_ns / 1e6,
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def arrays(self) -> Columns:
        # By way of bytes: an array that lends out its buffer can't grow meanwhile.
        columns: Columns = {
            name: np.frombuffer(column.tobytes(), column.typecode)
            for name, column in self._columns.items()
        }
        columns["uneven"] = columns["uneven"].astype(bool)
        return columns


class Batches:
    """Every batch that was divided, numbered from 0 in the order it came.

    Memory is bounded: when batches take more than 32 MB, every second even one
    of the older half is forgotten. The partial ones stay.

    Columns (one row for each kept batch, oldest first):
      number: int64 array: the batch's number in this recording.
      time_s: float64 array: seconds since the run began.
      dataset, epoch, batch: int64 arrays: as the `Sharding` event says.
      examples: int64 array: examples in the global batch.
      uneven: bool array: some replica got fewer than its share.
      wait_ms, transfer_ms: float64 arrays: milliseconds waited for the source
        and spent on putting the batch on the devices.
      count: single number: batches so far.
      forgotten: single number: how many of them are not kept.
      previews_left_out: single number: examples whose preview did not fit.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Strategy, Sharding, Preview)

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """Keeps about `most_bytes` of batches, previews not counted."""
        self.version = 0
        self._most_bytes = most_bytes
        self._clock = Clock()
        self._bytes = 0
        self._count = 0
        self._kept: dict[int, _Batch] = {}
        self._table = _Table()
        self._previews = Previews()
        self._devices: dict[int, list[str]] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            match event:
                case Sharding():
                    self._take(event)
                case Preview():
                    self._previews.add(event)
                case Strategy():
                    self._devices[event.strategy] = event.devices
                case _:
                    self._clock.start(event.time_ns)
        self.version += bool(events)

    def _take(self, event: Sharding) -> None:
        batch = _Batch(self._count, self._clock.seconds(event.time_ns), event)
        self._kept[self._count] = batch
        self._table.add(batch)
        self._count += 1
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

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        return self._table.arrays() | {
            "count": self._count,
            "forgotten": self._count - len(self._kept),
            "previews_left_out": self._previews.left_out,
        }

    def detail(self, number: int | None = None) -> Columns:
        """Returns one batch as the replicas got it.

        Args:
          number: which batch; the newest when None or not yet there, and the
            nearest kept one before it when it was forgotten.

        Returns:
          An empty dict before the first batch. Otherwise single values
          `number`, `dataset`, `epoch`, `batch`, `nominal`, `policy`, `bytes`,
          `wait_ms` and `transfer_ms`; `replica` (names of the replicas'
          devices) and `size` (examples of each), one for each replica; and one
          for each example in the order in which they were divided: `index` (its
          position in the source, int64 array, or None when the source has no
          positions), `pixels`, `known`, `label` and the single `form`, as
          `Pictures` describes them.
        """
        batch = self._nearest(number)
        if batch is None:
            return {}
        event = batch.event
        positions = None if event.indices is None else np.frombuffer(event.indices, "<i8")
        pictures = self._previews.find(
            event.dataset,
            event.batch,
            event.epoch,
            None if positions is None else positions.tolist(),
            sum(event.sizes),
        )
        return {
            "number": batch.number,
            "dataset": event.dataset,
            "epoch": event.epoch,
            "batch": event.batch,
            "nominal": event.nominal,
            "policy": event.policy,
            "bytes": event.bytes,
            "wait_ms": event.wait_ns / 1e6,
            "transfer_ms": event.transfer_ns / 1e6,
            "replica": self._replicas(event),
            "size": list(event.sizes),
            "index": positions,
            "pixels": pictures.pixels,
            "known": pictures.known,
            "label": pictures.labels,
            "form": pictures.form,
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

    def _replicas(self, event: Sharding) -> list[str]:
        names = self._devices.get(event.strategy, [])
        return [
            names[replica] if replica < len(names) else f"replica {replica}"
            for replica in range(len(event.sizes))
        ]
