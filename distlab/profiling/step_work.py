"""The work of a step on each device, whatever else the cores do meanwhile.

CPU devices share the machine's cores: the time for which one computes depends on what the others
do, and on other programs. A profile also holds how often each device ran each operation of the
program. That number times the operation's usual duration is the device's work, equal for equal
replicas. The usual duration is the lower quartile on all devices, as other programs only make an
operation longer; or the shortest on the device itself where that is longer, as of an operation that
waits for a callback there. In a ragged step the devices run programs of their own.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from distlab.events import ProgramShare

_Integers: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

_FEWEST_TIMES: Final = 2
"""The fewest runs of an operation that bounds a whole step."""

_FEWEST_OWN: Final = 3
"""The fewest runs of an operation whose shortest is not one that lost its core."""

COLLECTIVE: Final = re.compile(
    r"psum|pmean|pmax|pmin|ppermute|pbroadcast|all[-_]?reduce|all[-_]?gather|all[-_]?to[-_]?all"
    r"|reduce[-_]?scatter|collective",
    re.IGNORECASE,
)
"""The names of operations that connect devices, on CPUs."""


class Program(NamedTuple):
    """A compiled program."""

    name: str  # That of its function
    number: int  # Its number among those of that name: of a ragged step, or of other shapes


class StepWork(NamedTuple):
    """The work of each device."""

    step_ns: list[int]  # On each device; empty where unknown
    steps: int  # The whole steps from which it is known


UNKNOWN: Final = StepWork([], 0)

_MOST_SHARES: Final = 20


class Operations:
    """The operations of a profile, each as often as it ran."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Program, str], int] = {}
        self._rows = array("d")
        """Device, number of the operation, begin and duration, one after another."""

        self._outer: set[int] = set()
        self._open: list[tuple[float, int]] = []

    def begin_thread(self) -> None:
        """Begins another thread: no operation is inside of those before."""
        self._open.clear()

    def add(self, device: int, program: Program, name: str, span: tuple[float, float]) -> None:
        """Adds an operation; those of a thread come by their begin, outer ones first."""
        begin, end = span
        number = self._numbers.setdefault((program, name), len(self._numbers))
        while self._open and self._open[-1][0] < end:
            self._open.pop()
        if self._open:
            self._outer.add(self._open[-1][1])
        self._open.append((end, number))
        self._rows.extend((device, number, begin, end - begin))

    def work(self, devices: Sequence[int]) -> StepWork:
        """Returns the work of each device in a step of the functions that all of them run."""
        rows = np.frombuffer(self._rows).reshape(-1, 4)
        rows = rows[np.isin(rows[:, 0], devices)]
        if len(devices) < 2 or not len(rows):
            return UNKNOWN
        place = np.argmax(rows[:, 0, None] == np.array(devices), axis=1)
        number = rows[:, 1].astype(np.int64)
        begin, duration = rows[:, 2], rows[:, 3]
        times = np.zeros((len(devices), len(self._numbers)), np.int64)
        np.add.at(times, (place, number), 1)
        counts = self._plain() & self._of_all(times)
        shortest = np.full(times.shape, np.inf)
        np.minimum.at(shortest, (place, number), duration)
        common = np.where(counts, _lower_quartiles(number, duration, len(counts)), 0)
        own = np.where(counts & (times >= _FEWEST_OWN), shortest, 0)
        mark = self._mark(times, common)
        if mark is None:
            return UNKNOWN
        steps = np.zeros(len(devices), np.int64)
        ran = np.zeros(times.shape)
        for replica in range(len(devices)):
            here = place == replica
            marks = np.sort(begin[here & (number == mark)])
            whole = here & (begin >= marks[0]) & (begin < marks[-1])
            steps[replica] = len(marks) - 1
            ran[replica] = np.bincount(number[whole], minlength=len(counts))
        found = (_times_a_step(ran, steps) * np.maximum(common, own)).sum(axis=1)
        return StepWork([round(one) for one in found.tolist()], int(steps.min()))

    def shares(self, devices: Sequence[int]) -> list[ProgramShare]:
        """Returns the programs that took most of the devices' time."""
        rows = np.frombuffer(self._rows).reshape(-1, 4)
        rows = rows[np.isin(rows[:, 0], devices)]
        rows = rows[np.argsort(rows[:, 2], kind="stable")]
        functions = self._functions()
        found = []
        for function in dict.fromkeys(functions.tolist()):
            own = rows[functions[rows[:, 1].astype(np.int64)] == function]
            each = [own[own[:, 0] == device] for device in devices]
            counts = [np.unique(one[:, 1], return_counts=True)[1] for one in each if len(one)]
            runs = max((int(np.sort(one)[(len(one) - 1) // 2]) for one in counts), default=0)
            name = function.removeprefix("jit_")
            busy = [_covered(one[:, 2], one[:, 2] + one[:, 3]) for one in each]
            found.append(ProgramShare(name=name, runs=runs, busy_ns=busy))
        return sorted(found, key=lambda one: -sum(one.busy_ns))[:_MOST_SHARES]

    def _plain(self) -> _Flags:
        """Returns which operations neither consist of others nor connect devices, and so wait."""
        plain = np.zeros(len(self._numbers), bool)
        for (_, name), one in self._numbers.items():
            plain[one] = one not in self._outer and not COLLECTIVE.match(name)
        return plain

    def _of_all(self, times: _Integers) -> _Flags:
        """Returns which operations are of functions that all devices run: `reduce` is no work."""
        functions = self._functions()
        shared = {one: times[:, functions == one].any(axis=1).all() for one in set(functions)}
        return np.array([shared[one] for one in functions], bool)

    def _mark(self, times: _Integers, typical: _Floats) -> int | None:
        """Returns an operation that bounds steps: it runs least often of the main function."""
        functions = self._functions()
        work = times.sum(axis=0) * typical
        if not work.any():
            return None
        main = max(set(functions), key=lambda one: work[functions == one].sum())
        least, most = times.min(axis=0), times.max(axis=0)
        seldom = most[(functions == main) & (most > 0)].min()
        even = (functions == main) & (most == seldom) & (least >= max(_FEWEST_TIMES, seldom - 1))
        return int(np.flatnonzero(even)[0]) if even.any() else None

    def _functions(self) -> npt.NDArray[np.str_]:
        """Returns the name of each operation's function."""
        return np.array([program.name for program, _ in self._numbers])


def _covered(begin: _Floats, end: _Floats) -> int:
    """Returns the nanoseconds that spans cover, in the order of their begins."""
    if not len(begin):
        return 0
    reached = np.concatenate([[-np.inf], np.maximum.accumulate(end)[:-1]])
    return round(float(np.maximum(end - np.maximum(begin, reached), 0).sum()))


def _times_a_step(ran: _Floats, steps: _Integers) -> _Floats:
    """Returns how often each device runs each operation in a step.

    Operations come in any order: those of one step may be missing in whole steps, or too many. So a
    device that ran one as often as is usual, but for one step's runs, does so always.
    """
    often = ran / steps[:, None]
    usual = np.sort(often, axis=0)[(len(steps) - 1) // 2]
    apart = np.abs(ran - usual * steps[:, None])
    as_usual = apart <= np.maximum(usual, 1)
    found: _Floats = np.where(as_usual, usual, often)
    return found


def _lower_quartiles(number: _Integers, duration: _Floats, count: int) -> _Floats:
    """Returns the lower quartile of each operation's durations; 0 of those that did not run."""
    ordered = duration[np.lexsort((duration, number))]
    runs = np.bincount(number, minlength=count)
    found = np.zeros(count)
    found[runs > 0] = ordered[(np.cumsum(runs) - runs + (runs - 1) // 4)[runs > 0]]
    return found
