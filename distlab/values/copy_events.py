"""Saying that data moved between host and devices, or between devices."""

from __future__ import annotations

import time
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from distlab import events
from distlab.events import sink

Direction: TypeAlias = Literal["to_devices", "to_host", "between_devices"]


def announce(
    strategy: int, what: str, direction: Direction, *, size: int, copies: int, started: int
) -> None:
    """Emits that something was copied, when recording is on.

    Args:
      strategy: number of the strategy.
      what: what was copied.
      direction: from where to where.
      size: bytes of the value, once.
      copies: how many devices got it, or gave it.
      started: monotonic time in nanoseconds at which it began.
    """
    recorder = sink.recorder()
    if recorder.enabled:
        recorder.emit(
            events.Copy(
                time_ns=started,
                strategy=strategy,
                what=what,
                direction=direction,
                bytes=size,
                copies=copies,
                duration_ns=time.monotonic_ns() - started,
            )
        )


def to_host(value: jax.Array, dtype: Any, *, strategy: int, what: str) -> np.ndarray:
    """Returns an array's numbers on the host, and says so. Waits for them.

    Args:
      value: the array.
      dtype: element type to give, None for its own.
      strategy: number of the strategy.
      what: what is copied.
    """
    started = time.monotonic_ns()
    array = np.asarray(value, dtype=dtype)
    announce(strategy, what, "to_host", size=value.nbytes, copies=1, started=started)
    return array
