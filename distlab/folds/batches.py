"""The division of each global batch over the replicas, and its examples."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, NamedTuple, TypedDict, cast

import numpy as np
import numpy.typing as npt

from distlab.events import Compile, Event, Preview, Run, Sharding, Step, Strategy
from distlab.folds._fold import Fold, replica_names
from distlab.folds._previews import Previews
from distlab.folds.arrays import MOST_ENTRIES, Flags, Floats, Ints, Pixels

_MOST_FUNCTIONS: Final = 2
_MOST_DATASETS: Final = 1_000


class DatasetNames:
    """Names datasets, and gives them places in the order of their first batches.

    Datasets of one line whose batches one function receives, as in each epoch a new one, are one.
    """

    def __init__(self) -> None:
        self._programs: dict[int, str] = {}
        self.begin()

    def begin(self) -> None:
        """Forgets the datasets of the run before."""
        self.counts: list[int] = []
        self._origins: list[tuple[str, str, int]] = []
        self._functions: list[dict[str, None]] = []
        self._place_of: dict[int, int] = {}
        self._newest: dict[int, tuple[int, bool]] = {}

    def add(self, event: Sharding) -> int:
        """Counts a batch; returns the place of its dataset."""
        number = event.dataset
        place = self._place_of.get(number)
        first = place is None
        if place is None:
            origin = _origin(event)
            alike = [one for one, known in enumerate(self._origins) if known == origin]
            place = self._place_of[number] = alike[0] if alike else self._new_place(origin)
            if len(self._place_of) > _MOST_DATASETS:  # one is made for each epoch, say
                del self._place_of[next(iter(self._place_of))]
        self.counts[place] += 1
        self._newest[event.strategy] = number, first
        return place

    def note_program(self, event: Compile) -> None:
        """Notes the name of a function, which steps refer to by the number of its program."""
        self._programs[event.program] = event.function

    def note_step(self, event: Step) -> tuple[int, int] | None:
        """Notes which function received the last batch."""
        number, first = self._newest.pop(event.strategy, (-1, False))
        function = self._programs.get(event.program)
        place = self._place_of.get(number)
        if place is None or not function or not event.examples:
            return None
        known = self._functions[place]
        if function in known:
            return None
        if known and first:
            place = self._move(number, function)
        elif len(known) >= _MOST_FUNCTIONS:
            return None
        else:
            known[function] = None
        return number, place

    @property
    def main(self) -> int:
        """The place of the dataset with the most batches, 0 before the first."""
        return self.counts.index(max(self.counts)) if self.counts else 0

    def texts(self) -> list[str]:
        """Returns a name for each, such as `"train_step, train.py:31"`."""
        return [
            _text(*origin, functions)
            for origin, functions in zip(self._origins, self._functions, strict=True)
        ]

    def _move(self, number: int, function: str) -> int:
        """Gives a dataset the place of those whose batches the function receives."""
        before = self._place_of[number]
        origin = self._origins[before]
        fitting = [
            place
            for place, one in enumerate(self._origins)
            if one == origin and function in self._functions[place]
        ]
        place = fitting[0] if fitting else self._new_place(origin)
        self._functions[place][function] = None
        self._place_of[number] = place
        self.counts[before] -= 1
        self.counts[place] += 1
        return place

    def _new_place(self, origin: tuple[str, str, int]) -> int:
        self.counts.append(0)
        self._origins.append(origin)
        self._functions.append({})
        return len(self.counts) - 1


def _origin(event: Sharding) -> tuple[str, str, int]:
    """Returns what datasets have in common that are one: name and line, or else their number."""
    return event.name, event.source, -1 if event.name or event.source else event.dataset


def _text(name: str, source: str, number: int, functions: dict[str, None]) -> str:
    return ", ".join(filter(None, [name or " and ".join(functions), source])) or f"dataset {number}"


_MOST_BYTES = 32 * 2**20
_OVERHEAD_BYTES = 400


class BatchColumns(TypedDict):
    """Columns of `Batches`: one row for each kept batch, oldest first."""

    number: Ints
    epoch: Ints  #: Epochs, as the `Sharding` events state
    batch: Ints
    dataset: Ints
    examples: Ints
    uneven: Flags  #: Whether it is smaller than a full batch, or a replica received nothing
    wait_ms: Floats
    transfer_ms: Floats  #: Milliseconds spent on transferring the batch to the devices
    count: int
    forgotten: int  #: How many of them are not kept
    total_bytes: int
    total_wait_s: float  #: Seconds spent on waiting for all of them
    datasets: list[str]  #: The user's name or the functions that got it, and the line
    dataset_counts: list[int]
    main: int  #: Number of the dataset with the most batches, 0 before the first


class BatchDetail(TypedDict):
    """One batch as the replicas received it."""

    number: int
    epoch: int
    batch: int
    dataset: int
    nominal: int  #: How many examples a full batch has for each replica
    uneven: bool  #: Whether it is smaller than a full batch, or a replica received nothing
    policy: str
    bytes: int
    wait_ms: float
    transfer_ms: float  #: Milliseconds spent on transferring it to the devices
    replica: list[str]
    size: list[int]  #: How many examples each replica received
    whole_size: int | None  #: Examples of the whole batch where this is a part of it
    index: Ints | None  #: Position of each example in the source, where it has any
    form: str  #: `"image"`, `"numbers"`, or empty when no example has a preview
    pixels: Pixels  #: Previews of the examples, `(examples, *shape)`; zeros where unknown
    known: Flags
    label: list[str]  #: A short label for each example, empty when there is none
    mesh: dict[str, int]  #: Axes of the mesh on which it was placed, empty for a strategy's batch
    spec: list[list[str]]  #: The axes that divide each dimension of its largest array
    shape: list[int]


def _part_names(event: Sharding) -> list[str]:
    """Returns a name for each part of a batch on a mesh, such as `"data 2"`."""
    axes = {name: event.mesh[name] for name in (event.spec or [[]])[0] if name in event.mesh}
    if len(event.parts) != math.prod(axes.values()) or not event.mesh:
        return []
    places = itertools.product(*(range(size) for size in axes.values()))
    return [
        ", ".join(f"{name} {n}" for name, n in zip(axes, at, strict=True)) or "every device"
        for at in places
    ]


class _Batch(NamedTuple):
    number: int
    dataset: int
    event: Sharding

    @property
    def cost(self) -> int:
        """Bytes of memory that keeping it needs, approximately."""
        return _OVERHEAD_BYTES + len(self.event.indices or b"") + 8 * len(self.event.sizes)

    @property
    def uneven(self) -> bool:
        """True where a full batch has more examples, or a replica received none.

        A full batch of 64 gives three replicas 22, 22 and 20.
        """
        parts, share = self.event.parts, self.event.nominal
        if self.event.policy == "per_replica":
            return any(size != share for size in parts)
        return not all(parts) or -(-sum(parts) // max(len(parts), 1)) != share


_COLUMNS: Final = {
    **dict.fromkeys(("number", "epoch", "batch", "dataset", "examples"), "q"),
    "uneven": "b",
    **dict.fromkeys(("wait_ms", "transfer_ms"), "d"),
}
_DTYPES: Final[dict[str, Any]] = {"q": np.int64, "b": np.bool_, "d": np.float64}


class _Table:
    """The kept batches' columns, as arrays that grow; rebuilt only when batches are forgotten."""

    def __init__(self, batches: Iterable[_Batch] = ()) -> None:
        self._columns = {name: array(code) for name, code in _COLUMNS.items()}
        for batch in batches:
            self.add(batch)

    def add(self, batch: _Batch) -> None:
        event = batch.event
        numbers = (batch.number, event.epoch, event.batch, batch.dataset, sum(event.parts))
        row: tuple[Any, ...] = (batch.uneven, event.wait_ns / 1e6, event.transfer_ns / 1e6)
        for column, value in zip(self._columns.values(), numbers + row, strict=True):
            column.append(value)

    def move_last(self, dataset: int) -> None:
        """Gives the last batch to another dataset."""
        self._columns["dataset"][-1] = dataset

    def columns(self) -> dict[str, npt.NDArray[Any]]:
        # By way of bytes: an array that lends its buffer cannot grow meanwhile.
        return {
            name: np.frombuffer(column.tobytes(), _DTYPES[column.typecode])
            for name, column in self._columns.items()
        }


class Batches(Fold[BatchColumns]):
    """Every batch that the newest run divided, numbered from 0 in the order of arrival.

    Memory is bounded: when batches need more than 32 MB, every second batch of the
    older half is forgotten, uneven ones last.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Strategy, Sharding, Preview, Compile, Step)

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """Keeps about `most_bytes` of batches, not counting previews."""
        self._most_bytes = most_bytes
        self._previews = Previews()
        self._datasets = DatasetNames()
        self._devices: dict[int, list[str]] = {}
        self._begin()

    def _begin(self) -> None:
        """Forgets the batches of the run before."""
        self._bytes = 0
        self._count = 0
        self._total_bytes = self._wait_ns = 0
        self._kept: dict[int, _Batch] = {}
        self._table = _Table()
        self._newest: dict[int, int] = {}
        self._datasets.begin()

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        changed = False
        for event in events:
            match event:
                case Step():
                    changed |= self._note_step(event)
                    continue
                case Compile():
                    self._datasets.note_program(event)
                    continue
                case Sharding():
                    self._add_batch(event)
                case Run():
                    self._begin()
                case Preview():
                    self._previews.add(event)
                case Strategy():
                    self._devices[event.strategy] = event.replicas
                case _:
                    pass
            changed = True
        self.version += changed

    def _add_batch(self, event: Sharding) -> None:
        batch = _Batch(self._count, self._datasets.add(event), event)
        self._newest[batch.dataset] = batch.number
        self._kept[self._count] = batch
        self._table.add(batch)
        self._count += 1
        self._total_bytes += event.bytes
        self._wait_ns += event.wait_ns
        self._bytes += batch.cost
        if self._bytes > self._most_bytes:
            self._forget()

    def _note_step(self, event: Step) -> bool:
        """Notes which function received the last batch; returns whether that is new."""
        noted = self._datasets.note_step(event)
        if noted is None:
            return False
        number, place = noted
        last = self._kept[next(reversed(self._kept))]
        if last.event.dataset == number and last.dataset != place:
            self._kept[last.number] = last._replace(dataset=place)
            self._table.move_last(place)
            self._newest[place] = last.number
            self._newest[last.dataset] = max(
                one.number for one in self._kept.values() if one.dataset == last.dataset
            )
        return True

    def _forget(self) -> None:
        older = list(self._kept.values())[: len(self._kept) // 2]
        # The newest batch of each dataset stays: a page may show it alone.
        older = [one for one in older if self._newest[one.dataset] != one.number]
        even = [batch for batch in older if not batch.uneven]
        for batch in even[1::2] or older[1::2]:
            del self._kept[batch.number]
            self._bytes -= batch.cost
        self._table = _Table(self._kept.values())

    def columns(self) -> BatchColumns:
        """Returns the batches of all events so far."""
        kept = self._table.columns()
        names = self._datasets
        others = {
            "count": self._count,
            "forgotten": self._count - len(self._kept),
            "total_bytes": self._total_bytes,
            "total_wait_s": self._wait_ns / 1e9,
            "datasets": names.texts(),
            "dataset_counts": list(names.counts),
            "main": names.main,
        }
        return cast("BatchColumns", kept | others)

    def detail(self, number: int | None = None, dataset: int | None = None) -> BatchDetail | None:
        """Returns one batch as the replicas received it, None before the first.

        Args:
          number: Number of the batch; None for the newest. For a batch that has not
            arrived it is the newest, for a forgotten one the nearest before it.
          dataset: Number of the dataset to which it belongs; None for any.
        """
        batch = self._kept.get(number) if number is not None else None
        if batch is None or dataset not in (None, batch.dataset):
            batch = self._nearest(number, dataset)
        if batch is None:
            return None
        event = batch.event
        sizes = event.parts
        examples = sum(sizes)
        if examples > MOST_ENTRIES:
            raise ValueError(f"a batch of {examples:,} examples")
        positions = event.positions
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
            "dataset": batch.dataset,
            "nominal": event.nominal,
            "uneven": batch.uneven,
            "policy": event.policy,
            "bytes": event.bytes,
            "wait_ms": event.wait_ns / 1e6,
            "transfer_ms": event.transfer_ns / 1e6,
            "replica": _part_names(event)
            or replica_names(self._devices.get(event.strategy, []), len(sizes)),
            "size": list(sizes),
            "whole_size": None,
            "index": positions,
            "form": pictures.form,
            "pixels": pictures.pixels,
            "known": pictures.known,
            "label": pictures.labels,
            "mesh": event.mesh,
            "spec": event.spec,
            "shape": event.shape,
        }

    @property
    def main(self) -> int:
        """Number of the dataset with the most batches, 0 before the first."""
        return self._datasets.main

    def _nearest(self, number: int | None, dataset: int | None) -> _Batch | None:
        newest = max(
            (last for place, last in self._newest.items() if dataset in (None, place)),
            default=None,
        )
        if newest is None:
            return None
        if number is None or number >= newest:
            return self._kept[newest]
        fitting = [one for one in self._kept.values() if dataset in (None, one.dataset)]
        before = [one for one in fitting if one.number <= number]
        return before[-1] if before else fitting[0]
