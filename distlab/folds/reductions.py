"""Reductions across replicas: those called from Python, and those inside programs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from math import nan
from typing import ClassVar, Final, NamedTuple, TypedDict

import numpy as np

from distlab.events import Collective, Compile, Event, Reduction, Run, Step
from distlab.folds._fold import Fold, table
from distlab.meshes import blocks
from distlab.text.units import counted, dtype_text

_VALUE: Final = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<sizes>[\d,<=]*)\](?: like (?P<name>.+))?")


class Combined(NamedTuple):
    """The operands of a collective."""

    text: str  # Such as `"8 arrays and 1 number"`, `"1 array like kernel"`; empty for unknown
    largest: str  # Such as `"like kernel"`, or type and shape; empty for numbers
    values: tuple[str, ...]  # Such as `"float32[64,10] like kernel"`, largest first


_NOT_KNOWN: Final = Combined("", "", ())


def combined(collective: Collective) -> Combined:
    """Returns what a collective combines."""
    operands = []
    for value in collective.values:
        match = _VALUE.match(value.partition(" from ")[0])
        if match is not None:
            sizes = match["sizes"]
            length = math.prod(int(size.lstrip("<=")) for size in sizes.split(",") if size)
            shape = f"{dtype_text(match['dtype'])}[{sizes}]"
            operands.append((-length, match["name"] or "", shape))
    operands.sort()  # programs of one function combine the same values in orders of their own
    values = tuple(f"{shape} like {name}" if name else shape for _, name, shape in operands)
    arrays = [(name, shape) for _, name, shape in operands if not shape.endswith("[]")]
    numbers = len(operands) - len(arrays)
    if not arrays:
        return Combined(counted(numbers, "number") if numbers else "", "", values)
    name, shape = arrays[0]
    largest = f"like {name}" if name else shape
    unlisted = max(collective.operands - len(collective.values), 0)
    text = counted(len(arrays) + unlisted, "array")
    if len(operands) + unlisted == 1:
        text = f"{text} {largest}"
    if numbers:
        text = f"{text} and {counted(numbers, 'number')}"
    return Combined(text, largest, values)


def _purpose(collective: Collective) -> Combined:
    """Returns what a collective of a user's own mesh moves: its purpose, where that is known."""
    found = combined(collective)
    names = collective.names
    if not collective.purpose:
        return found
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    of = f" of {', '.join(names[:2])}{more}" if names else ""
    return found._replace(text=f"{collective.purpose}{of}", largest="")


def _along(collective: Collective) -> str:
    shift = "" if collective.shift is None else f" shift {collective.shift:+d}"
    return f"{', '.join(collective.axes)}{shift}"


def _members(collective: Collective, mesh: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the positions that differ from the mesh's first along a collective's axes."""
    axes = {name: size if name in collective.axes else 1 for name, size in mesh.items()}
    alike = math.prod(axes.values()) == collective.group
    if not collective.axes or not alike or not blocks.is_sound((), mesh):
        return ()
    places = np.indices(tuple(axes.values())).reshape(len(axes), -1)
    return tuple(np.ravel(np.ravel_multi_index(tuple(places), tuple(mesh.values()))).tolist())


_MOST_ROWS = 500


class Pair(NamedTuple):
    """Bytes of a divided variable in one step: parts gathered, and gradients scattered."""

    name: str  # Of several that XLA moves together, all names
    gathers: int  # Times in one step
    gathered: int  # Bytes that one device sends for them
    scatters: int
    scattered: int


class ReductionColumns(TypedDict):
    """Columns of `Reductions`: one row for each kind of reduction, most bytes first."""

    where: list[str]  #: `"inside FUNCTION"` or `"from Python"`
    inside: list[bool]  #: Whether it is part of a compiled program
    kind: list[str]  #: `"all-reduce"`, `"reduce MEAN"`, `"gather"` and so on
    what: list[str]  #: Such as `"8 arrays and 1 number"`; empty for unknown
    largest: list[str]  #: Such as `"like kernel"`, or its shape
    values: list[tuple[str, ...]]
    how: list[tuple[str, ...]]  #: The algorithm, or the program's operations and lines
    dtype: list[str]
    bytes: list[int]  #: Bytes of the operand on one replica, each time
    participants: list[int]
    along: list[str]  #: Axes of the user's own mesh, such as `"data"`, `"seq shift +1"`; or empty
    group: list[int]  #: Devices that work together, 0 for unknown
    members: list[tuple[int, ...]]  #: Positions of the first group in the mesh; empty for unknown
    sent_bytes: list[int]  #: Bytes that one device sends in all; 0 from Python
    count: list[int]
    at_least: list[bool]  #: XLA does not know how often: once a step is counted
    total_bytes: list[int]  #: Of one replica's operands, not of a network
    mean_ms: list[float]  #: That the caller spent; NaN inside programs
    rows_left_out: int  #: How many reductions of kinds beyond 500 are not counted
    pairs: list[Pair]  #: Divided arrays of the program that ran most often, most bytes first
    pairs_of: str  #: Its function


_FROM_PYTHON: Final = "from Python"


class _Kind(NamedTuple):
    """A kind of reduction, which has one row."""

    where: str
    kind: str
    combined: Combined
    algorithm: str  # Empty inside programs
    dtype: str
    bytes: int
    participants: int
    at_least: bool
    along: str = ""
    group: int = 0
    members: tuple[int, ...] = ()
    wire_bytes: int = 0  # That one device sends each time


class Reductions(Fold[ReductionColumns]):
    """Each kind of reduction, with the number of times it ran in the newest run.

    Reductions inside a program are read from the compiled program, once, and
    multiplied by the steps that ran it: nothing is measured while it runs. A function
    has a program for each shape of its arguments; a reduction of several of them is
    one row.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Compile, Step, Reduction)

    def __init__(self) -> None:
        self._programs: dict[int, Compile] = {}
        self._begin()

    def _begin(self) -> None:
        """Forgets the counts of the run before."""
        self._steps: Counter[int] = Counter()
        self._called: Counter[_Kind] = Counter()
        self._spent_ns: Counter[_Kind] = Counter()
        self._left_out = 0

    def _add(self, event: Event) -> None:
        match event:
            case Step():
                self._steps[event.program] += 1
            case Run():
                self._begin()
            case Compile():
                self._programs[event.program] = event
            case Reduction():
                self._add_call(event)
            case _:
                pass

    def _add_call(self, event: Reduction) -> None:
        kind = _Kind(
            where=_FROM_PYTHON,
            kind=f"{event.verb} {event.op}".strip(),
            combined=_NOT_KNOWN,
            algorithm=event.algorithm.replace("_", " "),
            dtype=event.dtype,
            bytes=event.bytes,
            participants=event.participants,
            at_least=False,
        )
        if kind not in self._called and len(self._called) >= _MOST_ROWS:
            self._left_out += 1
            return
        self._called[kind] += 1
        self._spent_ns[kind] += event.duration_ns

    def columns(self) -> ReductionColumns:
        """Returns the reductions of all events so far."""
        # A recording begins with the programs compiled before it, and may run none of them.
        ran = [program for program in self._programs.values() if self._steps[program.program]]
        inside, lines = _inside(ran, self._steps)
        dividing = [program for program in ran if any(map(_is_gather, program.collectives))]
        main = max(dividing, key=lambda one: self._steps[one.program], default=None)
        counts = {**self._called, **inside}
        kinds = sorted(counts, key=lambda k: (-k.bytes * counts[k], k.where, k.kind, k.bytes))
        called = [kind in self._called for kind in kinds]
        return table(
            ReductionColumns,
            kinds,
            inside=[not one for one in called],
            what=[kind.combined.text for kind in kinds],
            largest=[kind.combined.largest for kind in kinds],
            values=[kind.combined.values for kind in kinds],
            how=[tuple(lines.get(kind, (kind.algorithm,))) for kind in kinds],
            count=[counts[kind] for kind in kinds],
            total_bytes=[kind.bytes * counts[kind] for kind in kinds],
            sent_bytes=[kind.wire_bytes * counts[kind] for kind in kinds],
            mean_ms=[
                self._spent_ns[kind] / counts[kind] / 1e6 if one else nan
                for kind, one in zip(kinds, called, strict=True)
            ],
            rows_left_out=self._left_out,
            pairs=_pairs(main.collectives) if main else [],
            pairs_of=main.function if main else "",
        )


def _is_gather(one: Collective) -> bool:
    return one.kind == "all-gather" and one.purpose == "whole" and bool(one.names)


def _pairs(collectives: list[Collective]) -> list[Pair]:
    """Returns the gathers and reduce-scatters of divided arrays by their names."""
    found: dict[str, Pair] = {}
    for one in collectives:
        name, times = ", ".join(one.names), one.times_per_step or 1
        sent = times * (one.wire_bytes or 0)
        pair = found.get(name, Pair(name, 0, 0, 0, 0))
        if _is_gather(one):
            pair = pair._replace(gathers=pair.gathers + times, gathered=pair.gathered + sent)
        elif one.kind == "reduce-scatter" and one.names:
            pair = pair._replace(scatters=pair.scatters + times, scattered=pair.scattered + sent)
        else:
            continue
        found[name] = pair
    return sorted(found.values(), key=lambda pair: -pair.gathered - pair.scattered)


def _inside(
    programs: list[Compile], steps: Mapping[int, int]
) -> tuple[Counter[_Kind], dict[_Kind, dict[str, None]]]:
    """Returns how often each kind of collective in programs ran, and its lines."""
    counts: Counter[_Kind] = Counter()
    lines: dict[_Kind, dict[str, None]] = {}
    # A ragged program is assembled from pieces and names the line that called `run`:
    # its lines serve only for kinds that no other program has.
    for program in sorted(programs, key=lambda program: program.mode == "ragged"):
        here: dict[_Kind, dict[str, None]] = {}
        of_user = not program.mesh.keys() <= {"replica"}
        divides = any(map(_is_gather, program.collectives))
        for one in program.collectives:
            kind = _Kind(
                where=f"inside {program.function}",
                kind=one.kind,
                combined=_purpose(one) if of_user or divides else combined(one),
                algorithm="",
                dtype=one.dtype,
                bytes=one.operand_bytes,
                participants=one.participants,
                at_least=one.times_per_step is None,
                along=_along(one) if of_user else "",
                group=one.group,
                members=_members(one, program.mesh) if of_user else (),
                wire_bytes=one.wire_bytes or 0,
            )
            times = 1 if one.times_per_step is None else one.times_per_step
            counts[kind] += times * steps[program.program]
            here.setdefault(kind, {})[one.source] = None
        for kind, found in here.items():
            if program.mode != "ragged" or kind not in lines:
                lines.setdefault(kind, {}).update(found)
    return counts, lines
