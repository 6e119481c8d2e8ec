"""The events of a call: its step, its error, or a program of it that could not be read."""

from __future__ import annotations

import time

from distlab import events
from distlab.devices import in_flight
from distlab.events import numbering, sink
from distlab.text.shown import shown_text
from distlab.user_code import warn


def begin() -> int:
    """Notes that a step is called: waits from here on are its own. Returns the monotonic time."""
    in_flight.awaited.before_ns = in_flight.awaited.ns
    return time.monotonic_ns()


def emit_step(
    recorder: sink.Recorder, program: int, strategy: int, called: int, examples: int
) -> int:
    """Emits a step that has just been dispatched; returns its number."""
    step = next(numbering.steps)
    dispatched = time.monotonic_ns()
    waited = in_flight.awaited.before_ns
    in_flight.awaited.ns = in_flight.awaited.before_ns = 0
    recorder.emit(
        events.Step(
            time_ns=called,
            step=step,
            program=program,
            strategy=strategy,
            dispatched_ns=dispatched,
            awaited_ns=waited,
            examples=examples,
        )
    )
    return step


def emit_error(recorder: sink.Recorder, where: str, error: Exception) -> None:
    """Emits that a call raised."""
    recorder.emit(
        events.Error(
            time_ns=time.monotonic_ns(),
            where=where,
            type=type(error).__name__,
            message=shown_text(error)[:2000],
        )
    )


def emit_unread(recorder: sink.Recorder, function: str, error: Exception) -> None:
    """Reports that a program could not be read."""
    reason = (
        f"The program of {function} could not be examined, so pages and advice lack it: "
        f"{type(error).__name__}: {error}. The step has run."
    )
    recorder.emit(events.Lost(time_ns=time.monotonic_ns(), count=1, reason=reason[:2_000]))
    warn(reason, RuntimeWarning)
