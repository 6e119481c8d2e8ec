"""Events about data that is copied between host and devices, or between devices."""

from __future__ import annotations

import time
from typing import Any, Literal, TypeAlias

import jax
import numpy as np

from distlab import events
from distlab.events import sink
from distlab.user_code import calling_line

Direction: TypeAlias = Literal["to_devices", "to_host", "between_devices"]


def announce(
    strategy: int,
    what: str,
    direction: Direction,
    *,
    size: int,
    copies: int,
    started: int,
    waiting: int = 0,
) -> None:
    """Emits that a value was copied, while recording is on."""
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
                waiting_ns=waiting,
                source=calling_line(),
            )
        )


def to_host(
    value: jax.Array, dtype: Any, copy: bool | None, *, strategy: int, what: str
) -> np.ndarray:
    """Waits for an array, copies it to the host and emits the copy; `copy` is NumPy's."""
    if not sink.recorder().enabled:
        return np.array(value, dtype=dtype, copy=copy)
    started = time.monotonic_ns()
    # What computes the value is no part of the copy.
    jax.block_until_ready(value)  # a traced one has no numbers, so the next line raises
    waiting = time.monotonic_ns() - started
    array = np.array(value, dtype=dtype, copy=copy)
    announce(
        strategy,
        what,
        "to_host",
        size=value.nbytes,
        copies=1,
        started=started,
        waiting=waiting,
    )
    return array
