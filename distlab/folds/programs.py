"""Compiled programs: their cause, their contents, and how often each ran."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar, TypedDict

from distlab.events import Capture, Collective, Compile, Event, Run, Step
from distlab.folds._fold import Clock, Fold, table

_MOST_PROGRAMS = 300
_NAMES = {"pmap": "_fun"}
"""Functions that XLA has under another name."""


class ProgramColumns(TypedDict):
    """Columns of `Programs`: one row for each of the last 300 programs, newest first.

    Numbers of XLA's analyses are None where XLA does not report them.
    """

    function: list[str]
    source: list[str]  #: Where each function is defined
    cause: list[str]  #: Why each program was compiled, such as `"new shapes"`
    changed: list[str]  #: Which argument changed and how, empty for a new function
    arguments: list[list[str]]  #: The arguments of one replica, as `"name: dtype[shape]"`
    collectives: list[list[Collective]]
    flops: list[float | None]  #: Floating-point operations of one execution on one device
    argument_bytes: list[int | None]
    output_bytes: list[int | None]
    temp_bytes: list[int | None]
    peak_bytes: list[int | None]  #: The most bytes that one execution holds on one device
    at_s: list[float]  #: When ready, since the run began; 0 for programs before it
    compile_s: list[float]  #: Seconds spent on tracing and compiling each
    steps: list[int]
    share: list[float | None]  #: Of the devices' time, in profiles of runs without steps
    observed: bool  #: Whether every program of JAX is listed, of which no call is counted
    rows_left_out: int
    compiling_s: float  #: Seconds spent on tracing and compiling all of them
    compiled_s: float  #: The same, without programs of before the run


class Programs(Fold[ProgramColumns]):
    """The compiled programs, also those of before the run, and the run's steps that ran them."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Compile, Step, Capture)

    def __init__(self) -> None:
        self._programs: dict[int, Compile] = {}
        self._left_out = 0
        self._compiling_ns = 0
        self._observed = False
        self._begin()

    def _begin(self) -> None:
        """Forgets the counts of the run before, whose times count from another second 0."""
        self._clock = Clock()
        self._steps: Counter[int] = Counter()
        self._busy_ns: Counter[str] = Counter()
        self._profiled_ns = 0
        self._compiled_ns = 0

    def _add(self, event: Event) -> None:
        if isinstance(event, Step):
            self._steps[event.program] += 1
        elif isinstance(event, Compile):
            spent_ns = event.trace_ns + event.compile_ns
            self._compiling_ns += spent_ns
            self._compiled_ns += spent_ns if self._clock.seconds(event.time_ns) else 0
            self._programs[event.program] = event
            if len(self._programs) > _MOST_PROGRAMS:
                oldest = next(iter(self._programs))
                del self._programs[oldest]
                self._steps.pop(oldest, None)
                self._left_out += 1
        elif isinstance(event, Capture):
            if not event.steps:
                self._profiled_ns += (event.time_ns - event.start_ns) * len(event.devices)
                self._busy_ns.update({one.name: sum(one.busy_ns) for one in event.programs})
        elif isinstance(event, Run):
            self._begin()
            self._clock.start(event.time_ns)
            self._observed = event.observe == "programs"

    def columns(self) -> ProgramColumns:
        """Returns the programs of all events so far."""
        programs = list(reversed(self._programs.values()))
        return table(
            ProgramColumns,
            programs,
            at_s=[self._clock.seconds(one.time_ns) for one in programs],
            compile_s=[(one.trace_ns + one.compile_ns) / 1e9 for one in programs],
            steps=[self._steps[one.program] for one in programs],
            share=[self._share(one.function) for one in programs],
            observed=self._observed,
            rows_left_out=self._left_out,
            compiling_s=self._compiling_ns / 1e9,
            compiled_s=self._compiled_ns / 1e9,
        )

    def _share(self, function: str) -> float | None:
        """Returns the share of the devices' time of a function's programs, which share a name."""
        if not self._profiled_ns:
            return None
        name = re.sub(r"[^\w.-]", "_", function).rstrip("_")
        return self._busy_ns[_NAMES.get(name, name)] / self._profiled_ns
