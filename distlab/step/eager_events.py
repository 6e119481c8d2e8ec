"""The events of steps that run as ordinary Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from distlab import events
from distlab.events import sink
from distlab.step.place import Place
from distlab.step.program import next_number
from distlab.values.checks import function_name, function_source


def emit(place: Place, fn: Callable[..., Any], leaves: list[Any], step: int, called: int) -> None:
    """Emits a step that ran eagerly, and before a function's first one what the function is.

    Args:
      place: Where it ran.
      fn: The function.
      leaves: Its flat arguments.
      step: Number of the step.
      called: Monotonic time in nanoseconds at which it was called.
    """
    recorder = sink.recorder()
    now = time.monotonic_ns()
    name, source = function_name(fn), function_source(fn)
    program = place.eager_programs.get((name, source))
    if program is None:
        program = place.eager_programs[name, source] = next_number()
        recorder.emit(
            events.Compile(
                time_ns=now,
                program=program,
                strategy=place.number,
                function=name,
                cause="new function",
                changed="",
                arguments=[],
                mode="eager",
                trace_ns=0,
                compile_ns=0,
                collectives=[],
                flops=None,
                bytes_accessed=None,
                source=source,
            )
        )
    recorder.emit(
        events.Step(
            time_ns=called,
            step=step,
            program=program,
            strategy=place.number,
            dispatched_ns=now,
            examples=place.batch.examples_among(leaves),
        )
    )
