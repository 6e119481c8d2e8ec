"""The one place where the core hands events to whoever listens.

The core asks `recorder()` and calls it; it never imports what listens. Until
something is installed, and when recording is off, the null recorder answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from distlab.events.kinds import Event

if TYPE_CHECKING:
    import jax


class Recorder(Protocol):
    """What the core needs of a recorder. No method blocks or raises."""

    enabled: bool
    """False: the caller need not build events at all."""

    def emit(self, event: Event) -> None:
        """Takes one event: one append."""

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """May follow `result`, one output of `step`, until it is ready.

        Args:
          strategy: number of the strategy.
          step: number of the step.
          time_ns: monotonic time at which the step was called.
          result: one output, sharded or replicated over the replicas' devices.
        """

    def compiled(self, event: Callable[..., Event], program: Any) -> None:
        """Reads what is inside a compiled program and emits its event.

        Args:
          event: makes the event from `collectives`, `flops`, `bytes_accessed`,
            `temp_bytes`, `argument_bytes`, `output_bytes` and `peak_bytes`.
          program: a `jax.stages.Compiled`, or a list of them for a ragged step.
        """


class NullRecorder:
    """Records nothing."""

    enabled = False

    def emit(self, event: Event) -> None:
        """Drops the event."""

    def watch(self, strategy: int, step: int, time_ns: int, result: jax.Array) -> None:
        """Does nothing."""

    def compiled(self, event: Callable[..., Event], program: Any) -> None:
        """Does nothing."""


NULL = NullRecorder()
_make_default: Callable[[], Recorder] | None = None
_recorder: Recorder | None = None


def recorder() -> Recorder:
    """Returns the recorder in force; makes the default one at the first call."""
    global _recorder
    if _recorder is None:
        _recorder = NULL if _make_default is None else _make_default()
    return _recorder


def install(recorder: Recorder) -> None:
    """Puts a recorder in force for the whole process."""
    global _recorder
    _recorder = recorder


def set_default(make: Callable[[], Recorder]) -> None:
    """Says how the default recorder is made when the first event needs it."""
    global _make_default
    _make_default = make
