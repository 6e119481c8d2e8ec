"""Each compiled program: why it was made, what is inside, and how often it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from distlab.events import Compile, Event, Run, Step
from distlab.folds._fold import Clock, Columns

_MOST = 300


class Programs:
    """The compiled programs, the newest first.

    Columns (one row for each of the last 300 programs):
      function, source, cause, changed, mode: lists as the `Compile` event says.
      at_s: list of seconds since the run began at which it was ready; 0 for
        programs that stood before.
      compile_s: list of seconds spent on tracing and compiling it.
      steps: list of how many steps ran it.
      arguments: list of lists of texts.
      flops, bytes_accessed, argument_bytes, output_bytes, temp_bytes, peak_bytes:
        lists of numbers, None where XLA does not say.
      collectives: list of lists of `Collective`.
      rows_left_out: single number: programs beyond those.
      compiling_s: single number: seconds spent on all of them.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Compile, Step)

    def __init__(self) -> None:
        self.version = 0
        self._clock = Clock()
        self._programs: dict[int, Compile] = {}
        self._steps: Counter[int] = Counter()
        self._left_out = 0
        self._compiling_ns = 0

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            if isinstance(event, Step):
                self._steps[event.program] += 1
            elif isinstance(event, Compile):
                self._compiling_ns += event.trace_ns + event.compile_ns
                self._programs[event.program] = event
                if len(self._programs) > _MOST:
                    oldest = next(iter(self._programs))
                    del self._programs[oldest]
                    self._steps.pop(oldest, None)
                    self._left_out += 1
            else:
                self._clock.start(event.time_ns)
        self.version += bool(events)

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        programs = list(reversed(self._programs.values()))
        fields = (
            *("function", "source", "cause", "changed", "mode", "arguments", "collectives"),
            *("flops", "bytes_accessed", "argument_bytes", "output_bytes"),
            *("temp_bytes", "peak_bytes"),
        )
        told: Columns = {field: [getattr(one, field) for one in programs] for field in fields}
        return {
            **told,
            "at_s": [self._clock.seconds(one.time_ns) for one in programs],
            "compile_s": [(one.trace_ns + one.compile_ns) / 1e9 for one in programs],
            "steps": [self._steps[one.program] for one in programs],
            "rows_left_out": self._left_out,
            "compiling_s": self._compiling_ns / 1e9,
        }
