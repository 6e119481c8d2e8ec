"""Events about the placement of variables and the release of their memory."""

from __future__ import annotations

import time
import weakref
from typing import Literal

import numpy as np

from distlab import events
from distlab.events import sink
from distlab.user_code import calling_line
from distlab.variables.protocol import StoredVariable


def announce(variable: StoredVariable, number: int) -> None:
    """Emits the placement of a new variable, and later the release of its memory."""
    recorder = sink.recorder()
    if not recorder.enabled:
        return
    storage = variable.storage
    strategy, name, layout = variable.strategy.number, variable.name, storage.layout.name
    server = storage.layout.server
    shape, dtype = list(variable.shape), str(variable.dtype)
    devices = storage.device_names()
    source = calling_line()
    size = int(np.prod(shape)) * variable.dtype.itemsize

    def emit(action: Literal["place", "free"]) -> None:
        sink.recorder().emit(
            events.Placement(
                time_ns=time.monotonic_ns(),
                strategy=strategy,
                array=number,
                name=name,
                action=action,
                layout=layout,
                shape=shape,
                dtype=dtype,
                devices=devices,
                bytes_per_device=[size] * len(devices),
                server=server,
                source=source,
            )
        )

    emit("place")
    weakref.finalize(variable, emit, "free").atexit = False
