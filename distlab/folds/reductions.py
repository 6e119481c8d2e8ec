"""Reductions across replicas: those called from Python, and those inside programs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import ClassVar, Final, NamedTuple, TypedDict

from distlab.events import Collective, Compile, Event, Reduction, Step
from distlab.folds._fold import table
from distlab.text.units import dtype_text

_VALUE: Final = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<sizes>[\d,<=]*)\](?: like (?P<name>.+))?")


class Combined(NamedTuple):
    """The operands of a collective.

    Attributes:
      text: How many they are, such as `"8 arrays and 1 number"`, or a single one, such as
        `"1 array like kernel"`; empty when they are not known.
      largest: The largest array, such as `"like kernel"`, or its type and shape; empty for
        numbers.
      values: Type, shape and name of each, the largest first, such as `"float32[64,10] like
        kernel"`: the variable or argument is one of the same shape, as a gradient is that of its
        variable.
    """

    text: str
    largest: str
    values: tuple[str, ...]


class _Operand(NamedTuple):
    dtype: str
    sizes: str
    name: str

    @property
    def shape(self) -> str:
        """Its type and shape."""
        return f"{dtype_text(self.dtype)}[{self.sizes}]"

    @property
    def likeness(self) -> str:
        """The variable or argument of its shape, where that is known."""
        return f"like {self.name}" if self.name else ""

    @property
    def length(self) -> int:
        """The count of its numbers."""
        return math.prod(int(size.lstrip("<=")) for size in self.sizes.split(",") if size)


NOT_KNOWN: Final = Combined("", "", ())


def combined(collective: Collective) -> Combined:
    """Returns what a collective combines."""
    operands = []
    for value in collective.values:
        match = _VALUE.match(value.partition(" from ")[0])
        if match is not None:
            operands.append(_Operand(match["dtype"], match["sizes"], match["name"] or ""))
    # Programs of one function combine the same values in orders of their own.
    operands.sort(key=lambda one: (-one.length, one.name, one.shape))
    arrays = [one for one in operands if one.sizes]
    if not operands:
        return NOT_KNOWN
    if not arrays:
        return Combined(_counted(len(operands), "number"), "", tuple(map(_text, operands)))
    largest = max(arrays, key=lambda one: one.length)
    unlisted = max(collective.operands - len(collective.values), 0)
    numbers = len(operands) - len(arrays)
    text = _counted(len(arrays) + unlisted, "array")
    if len(operands) + unlisted == 1:
        text = f"{text} {largest.likeness or largest.shape}"
    if numbers:
        text = f"{text} and {_counted(numbers, 'number')}"
    return Combined(text, largest.likeness or largest.shape, tuple(map(_text, operands)))


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _text(operand: _Operand) -> str:
    return f"{operand.shape} {operand.likeness}".rstrip()


_MOST_ROWS = 500


class ReductionColumns(TypedDict):
    """Columns of `Reductions`: one row for each kind of reduction, most bytes first.

    Attributes:
      where: `"inside FUNCTION"` or `"from Python"`.
      inside: Whether it is part of a compiled program.
      kind: `"all-reduce"`, ..., or `"reduce MEAN"`, `"gather"`, ....
      what: What is combined, such as `"8 arrays and 1 number"`; empty when it is not known,
        as for calls from Python.
      largest: The largest array of it, by the variable of its shape, such as
        `"like kernel"`, or else by its shape.
      values: Type, shape and name of each array that is combined.
      how: The algorithm, or the operations and lines of the user's program, as far as
        XLA kept them.
      dtype: Element types.
      bytes: Bytes of the operand on one replica, each time.
      participants: How many replicas took part.
      count: How many times it ran.
      at_least: Whether the program does not state how many times one step runs it:
        `count` then has it once a step.
      total_bytes: `bytes * count`: bytes of one replica's operands, not those that
        moved over a network.
      mean_ms: Milliseconds that the caller spent in a call, NaN inside a program,
        which nothing outside can time.
      rows_left_out: How many reductions of kinds beyond 500 are not counted.
    """

    where: list[str]
    inside: list[bool]
    kind: list[str]
    what: list[str]
    largest: list[str]
    values: list[tuple[str, ...]]
    how: list[tuple[str, ...]]
    dtype: list[str]
    bytes: list[int]
    participants: list[int]
    count: list[int]
    at_least: list[bool]
    total_bytes: list[int]
    mean_ms: list[float]
    rows_left_out: int


class _Called(NamedTuple):
    """The kind of a reduction called from Python."""

    verb: str
    op: str
    algorithm: str
    dtype: str
    bytes: int
    participants: int


class _Inside(NamedTuple):
    """The kind of a collective in a function's programs."""

    function: str
    kind: str
    combined: Combined
    dtype: str
    bytes: int
    participants: int
    at_least: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the columns."""

    where: str
    inside: bool
    kind: str
    combined: Combined
    how: tuple[str, ...]
    dtype: str
    bytes: int
    participants: int
    count: int
    at_least: bool
    mean_ms: float

    @property
    def total_bytes(self) -> int:
        return self.bytes * self.count


class Reductions:
    """Each kind of reduction, with the number of times it ran.

    Reductions inside a program are read from the compiled program, once, and
    multiplied by the steps that ran it: nothing is measured while it runs. A function
    has a program for each shape of its arguments; a reduction of several of them is
    one row.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Compile, Step, Reduction)

    def __init__(self) -> None:
        self.version = 0
        self._programs: dict[int, Compile] = {}
        self._steps: dict[int, int] = {}
        self._called: dict[_Called, tuple[int, int]] = {}
        self._left_out = 0

    def add(self, events: Sequence[Event]) -> None:
        """Adds events, oldest first."""
        for event in events:
            match event:
                case Step():
                    self._steps[event.program] = self._steps.get(event.program, 0) + 1
                case Compile():
                    self._programs[event.program] = event
                case Reduction():
                    self._add_call(event)
                case _:
                    pass
        self.version += bool(events)

    def _add_call(self, event: Reduction) -> None:
        kind = _Called(
            event.verb, event.op, event.algorithm, event.dtype, event.bytes, event.participants
        )
        if kind not in self._called and len(self._called) >= _MOST_ROWS:
            self._left_out += 1
            return
        count, duration_ns = self._called.get(kind, (0, 0))
        self._called[kind] = (count + 1, duration_ns + event.duration_ns)

    def columns(self) -> ReductionColumns:
        """Returns the reductions of all events so far."""
        rows = [_called_row(kind, *value) for kind, value in self._called.items()]
        # A recording begins with the programs compiled before it, and may run none of them.
        ran = [program for program in self._programs.values() if program.program in self._steps]
        rows += _inside_rows(ran, self._steps)
        rows.sort(key=lambda row: (-row.total_bytes, row.where, row.kind, row.bytes))
        return table(
            ReductionColumns,
            rows,
            what=[row.combined.text for row in rows],
            largest=[row.combined.largest for row in rows],
            values=[row.combined.values for row in rows],
            rows_left_out=self._left_out,
        )


def _called_row(kind: _Called, count: int, duration_ns: int) -> _Row:
    return _Row(
        where="from Python",
        inside=False,
        kind=f"{kind.verb} {kind.op}".strip(),
        combined=NOT_KNOWN,
        how=(kind.algorithm.replace("_", " "),),
        dtype=kind.dtype,
        bytes=kind.bytes,
        participants=kind.participants,
        count=count,
        at_least=False,
        mean_ms=duration_ns / count / 1e6,
    )


def _inside_rows(programs: list[Compile], steps: dict[int, int]) -> list[_Row]:
    """Returns one row for each kind of collective in all programs of a function."""
    counts: dict[_Inside, int] = {}
    sources: dict[_Inside, dict[str, None]] = {}
    # A ragged program is assembled from pieces and names the line that called `run`:
    # its lines serve only for kinds that no other program has.
    for program in sorted(programs, key=lambda program: program.mode == "ragged"):
        here: dict[_Inside, dict[str, None]] = {}
        for collective in program.collectives:
            kind = _kind_of(program.function, collective)
            times = 1 if collective.times_per_step is None else collective.times_per_step
            counts[kind] = counts.get(kind, 0) + times * steps[program.program]
            here.setdefault(kind, {})[collective.source] = None
        for kind, found in here.items():
            if program.mode != "ragged" or kind not in sources:
                sources.setdefault(kind, {}).update(found)
    return [_inside_row(kind, tuple(sources[kind]), count) for kind, count in counts.items()]


def _kind_of(function: str, collective: Collective) -> _Inside:
    return _Inside(
        function,
        collective.kind,
        combined(collective),
        collective.dtype,
        collective.operand_bytes,
        collective.participants,
        collective.times_per_step is None,
    )


def _inside_row(kind: _Inside, sources: tuple[str, ...], count: int) -> _Row:
    return _Row(
        where=f"inside {kind.function}",
        inside=True,
        kind=kind.kind,
        combined=kind.combined,
        how=sources,
        dtype=kind.dtype,
        bytes=kind.bytes,
        participants=kind.participants,
        count=count,
        at_least=kind.at_least,
        mean_ms=nan,
    )
