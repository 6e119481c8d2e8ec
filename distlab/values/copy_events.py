"""Events about data that is copied between host and devices, or between devices."""

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
    """Emits that a value was copied, while recording is on.

    Args:
      strategy: The strategy's number.
      what: The value's name, such as that of a variable.
      direction: The direction of the copy.
      size: The bytes of one copy.
      copies: The number of devices that received or sent it.
      started: The monotonic time in nanoseconds at which it began.
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
    """Waits for an array, copies it to the host and emits the copy.

    Args:
      value: The array.
      dtype: The dtype of the result; None keeps that of the array.
      strategy: The strategy's number.
      what: The value's name, which the event carries.
    """
    started = time.monotonic_ns()
    array = np.asarray(value, dtype=dtype)
    announce(strategy, what, "to_host", size=value.nbytes, copies=1, started=started)
    return array
