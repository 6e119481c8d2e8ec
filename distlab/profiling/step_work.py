"""How much a step computes on each device, whatever else the cores do meanwhile.

CPU devices share the machine's cores, so the time for which one computes depends on what the others
do, and on other programs: a replica with twice the work seems to compute 1.2 to 1.5 times as long.
A profile also tells how often each device ran each operation of the program. That number times the
lower quartile of the operation's durations on all devices is the device's work, which is equal for
equal replicas. Other programs only make an operation longer, and one that a single device runs, as
in a branch of `lax.cond`, may have run twice in a profile, once without its core.
With the operation's median duration on the device itself it is what a step usually takes there: an
operation that lost its core once does not count, one that waits for a callback each time does.
In a ragged step the devices run programs of their own, whose operations count as they last there.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

_Integers: TypeAlias = npt.NDArray[np.int64]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

_FEWEST_TIMES: Final = 2
"""How often an operation runs at least to tell a whole step."""

COLLECTIVE: Final = re.compile(
    r"psum|pmean|pmax|pmin|ppermute|pbroadcast|all[-_]?reduce|all[-_]?gather|all[-_]?to[-_]?all"
    r"|reduce[-_]?scatter|collective",
    re.IGNORECASE,
)
"""The names of operations that connect devices, on CPUs."""


class Program(NamedTuple):
    """A compiled program.

    Attributes:
      name: That of its function.
      number: Tells it from others of that name: those of a ragged step, or of other shapes.
    """

    name: str
    number: int


class StepWork(NamedTuple):
    """The work of each device.

    Attributes:
      step_ns: The work of one step on each device, in nanoseconds; empty where it is not known.
      usual_ns: What one step usually takes on each device, with the functions that only some
        devices run; empty where it is not known.
      steps: From how many whole steps they are known.
    """

    step_ns: list[int]
    usual_ns: list[int]
    steps: int


UNKNOWN: Final = StepWork([], [], 0)


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
        plain, of_some = self._plain(), self._of_some(times)
        counts = plain & ~of_some
        typical = np.where(counts, _Durations(number, duration, len(counts)).lower_quartiles(), 0)
        mark = self._mark(times, typical)
        if mark is None:
            return UNKNOWN
        steps = np.zeros(len(devices), np.int64)
        ran = np.zeros(times.shape)
        of_others = np.zeros(len(devices))
        own_typical = np.zeros(times.shape)
        for replica in range(len(devices)):
            own = place == replica
            marks = np.sort(begin[own & (number == mark)])
            whole = own & (begin >= marks[0]) & (begin < marks[-1])
            steps[replica] = len(marks) - 1
            ran[replica] = np.bincount(number[whole], minlength=len(counts))
            durations = _Durations(number[own], duration[own], len(counts))
            own_typical[replica] = np.where(counts, durations.medians(), 0)
            of_others[replica] = duration[whole & (plain & of_some)[number]].sum()
        often = _times_a_step(ran, steps)
        found = (often * typical).sum(axis=1)
        usual = (often * own_typical).sum(axis=1) + of_others / steps
        return StepWork(_rounded(found), _rounded(usual), int(steps.min()))

    def _plain(self) -> _Flags:
        """Returns which operations neither consist of others nor connect devices.

        The duration of a collective is a wait.
        """
        plain = np.zeros(len(self._numbers), bool)
        for (_, name), one in self._numbers.items():
            plain[one] = one not in self._outer and not COLLECTIVE.match(name)
        return plain

    def _of_some(self, times: _Integers) -> _Flags:
        """Returns which operations are of functions that only some devices run.

        Such as the sums of `reduce`, which are no work of a step.
        """
        functions = self._functions()
        shared = {one: times[:, functions == one].any(axis=1).all() for one in set(functions)}
        return ~np.array([shared[one] for one in functions], bool)

    def _mark(self, times: _Integers, typical: _Floats) -> int | None:
        """Returns an operation that each device runs once a step, None where none tells steps.

        It is one that runs least often of the function with the most work.
        """
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


def _times_a_step(ran: _Floats, steps: _Integers) -> _Floats:
    """Returns how often each device runs each operation in a step.

    Operations that do not depend on each other come in any order, also relative to the one that
    tells the steps: those of one step may be missing in a device's whole steps, or too many. So a
    device that ran an operation as often as is usual, but for one step's runs, does so always.
    """
    often = ran / steps[:, None]
    usual = np.sort(often, axis=0)[(len(steps) - 1) // 2]
    apart = np.abs(ran - usual * steps[:, None])
    as_usual = apart <= np.maximum(usual, 1)
    found: _Floats = np.where(as_usual, usual, often)
    return found


def _rounded(nanoseconds: _Floats) -> list[int]:
    return [round(one) for one in nanoseconds.tolist()]


class _Durations:
    """The durations of each operation's runs, in order."""

    def __init__(self, number: _Integers, duration: _Floats, count: int) -> None:
        self._ordered = duration[np.lexsort((duration, number))]
        self._runs = np.bincount(number, minlength=count)
        self._begins = np.cumsum(self._runs) - self._runs

    def medians(self) -> _Floats:
        """Returns the median of each operation; 0 of those that did not run."""
        return (self._at((self._runs - 1) // 2) + self._at(self._runs // 2)) / 2

    def lower_quartiles(self) -> _Floats:
        """Returns the lower quartile of each operation, likewise: of four runs the shortest."""
        return self._at((self._runs - 1) // 4)

    def _at(self, rank: _Integers) -> _Floats:
        ran = self._runs > 0
        found = np.zeros(len(ran))
        found[ran] = self._ordered[(self._begins + rank)[ran]]
        return found
