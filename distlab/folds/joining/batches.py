"""The processes' parts of each global batch, as one batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from distlab.events import Preview, Sharding
from distlab.folds.joining.members import Members

_MOST_WAITING: Final = 256
"""Batches that wait for the part of a process."""

_MOST_PLACED: Final = 256


class _Key(NamedTuple):
    """A batch, by numbers that all processes share."""

    dataset: int
    epoch: int
    batch: int


@dataclass
class _Batch:
    """A batch of which parts arrived.

    Attributes:
      members: Its strategy.
      parts: The event of each process.
      previews: Previews of examples that are numbered within their part.
    """

    members: Members
    parts: dict[int, Sharding] = field(default_factory=dict)
    previews: list[tuple[int, Preview]] = field(default_factory=list)

    def first_example(self, process: int) -> int:
        """Returns how many examples of the batch come before a process's own."""
        sizes = _sizes(self)
        own = self.members.replicas[process]
        return sum(sizes[: own[0]]) if own else 0


class Batches:
    """Joins the parts of batches; one that a process left out has no examples there."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[_Key, _Batch] = OrderedDict()
        self._placed: OrderedDict[_Key, _Batch] = OrderedDict()

    def add(
        self,
        process: int,
        event: Sharding,
        dataset: int,
        members: Members,
        living: AbstractSet[int],
    ) -> Iterator[Sharding | Preview]:
        """Adds a process's part, and yields what is whole."""
        if members.own(process, event.sizes) is None:
            return
        key = _Key(dataset, event.epoch, event.batch)
        batch = self._waiting.setdefault(key, _Batch(members))
        batch.parts[process] = event
        if not living - batch.parts.keys():
            yield from self._finish(key)
        elif len(self._waiting) > _MOST_WAITING:
            yield from self._finish(next(iter(self._waiting)))

    def preview(self, process: int, event: Preview, dataset: int) -> Iterator[Preview]:
        """Adds previews of a process's examples, and yields them when their places are known."""
        if event.batch is None:
            yield msgspec.structs.replace(event, dataset=dataset)
            return
        key = _Key(dataset, event.epoch, event.batch)
        if key in self._placed:
            yield _shifted(self._placed[key], process, event, dataset)
        elif key in self._waiting:
            self._waiting[key].previews.append((process, event))

    def settle(self, members: Members, living: AbstractSet[int]) -> Iterator[Sharding | Preview]:
        """Yields the batches that wait for none of the living processes any more."""
        for key, batch in list(self._waiting.items()):
            if batch.members is members and not living - batch.parts.keys():
                yield from self._finish(key)

    def _finish(self, key: _Key) -> Iterator[Sharding | Preview]:
        batch = self._waiting.pop(key)
        yield _joined(batch, key.dataset)
        for process, preview in batch.previews:
            yield _shifted(batch, process, preview, key.dataset)
        if next(iter(batch.parts.values())).indices is None:
            self._placed[key] = batch
            if len(self._placed) > _MOST_PLACED:
                self._placed.popitem(last=False)


def _sizes(batch: _Batch) -> list[int]:
    sizes = [0] * len(batch.members.processes)
    for process, event in batch.parts.items():
        own = batch.members.own(process, event.sizes) or ()
        for replica, size in zip(batch.members.replicas[process], own, strict=True):
            sizes[replica] = size
    return sizes


def _joined(batch: _Batch, dataset: int) -> Sharding:
    events = [batch.parts[p] for p in batch.members.replicas if p in batch.parts]
    indices = [event.indices for event in events if event.indices is not None]
    return msgspec.structs.replace(
        events[0],
        time_ns=max(event.time_ns for event in events),
        strategy=batch.members.strategy,
        dataset=dataset,
        sizes=_sizes(batch),
        indices=b"".join(indices) if len(indices) == len(events) else None,
        bytes=sum(event.bytes for event in events),
        wait_ns=max(event.wait_ns for event in events),
        transfer_ns=max(event.transfer_ns for event in events),
        repeated=sum(event.repeated for event in events),
    )


def _shifted(batch: _Batch, process: int, event: Preview, dataset: int) -> Preview:
    """Returns previews numbered within the whole batch."""
    positions = np.frombuffer(event.indices, "<i8") + batch.first_example(process)
    return msgspec.structs.replace(event, dataset=dataset, indices=positions.tobytes())
