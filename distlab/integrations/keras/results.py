"""Results of a step: the replicas' outputs as NumPy arrays, and the numbers that it logged.

Keras asks for logged numbers late; reading one waits for the step, and records it as a metric.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any, TypeAlias, final

import numpy as np

from distlab.devices.pieces import pieces
from distlab.events import Metric, sink
from distlab.strategies.abstract import Strategy
from distlab.values.distributed import Mirrored, PerReplica
from distlab.values.padding import place_of

Path: TypeAlias = tuple[str, ...]
"""The place of a number in the logs: its name, after those of the dicts around it."""


def rows_of(value: PerReplica | Mirrored) -> dict[int, np.ndarray]:
    """Waits for a value; returns this process's components, device by device: twice as fast."""
    if isinstance(value, Mirrored):
        return {0: np.asarray(value.array)}
    rows = {
        first + i: row
        for first, piece in pieces(value.stacked)
        for i, row in enumerate(np.asarray(piece))
    }
    if value.shapes is None:
        return rows
    return {i: row[place_of(value.shapes[i], row.ndim)] for i, row in rows.items()}


def joined(value: Any, strategy: Strategy) -> Any:
    """Returns the examples of all replicas, with several workers in the input's order.

    That is the first replica of each, then the second ones: Keras' `_multi_worker_concat`.
    """
    if not isinstance(value, PerReplica | Mirrored):
        return value
    if isinstance(value, PerReplica) and strategy.mesh.shared:
        return _joined_of_workers(value, strategy)
    rows = list(rows_of(value).values())
    return np.concatenate(rows) if rows[0].shape else np.stack(rows)


def _joined_of_workers(value: PerReplica, strategy: Strategy) -> np.ndarray:
    workers: dict[int, list[np.ndarray]] = {}
    devices = strategy.mesh.devices
    shapes = value.shapes or (value.stacked.shape[1:],) * len(devices)
    ends = np.cumsum([shape[0] for shape in shapes])
    parts = np.split(np.asarray(strategy.gather(value, axis=0)), ends[:-1])
    for device, part in zip(devices, parts, strict=True):
        workers.setdefault(device.process_index, []).append(part)
    turns = zip_longest(*workers.values())
    return np.concatenate([part for turn in turns for part in turn if part is not None])


def mean_of(value: Any, sizes: tuple[int, ...]) -> np.ndarray:
    """Returns the mean of a value over the replicas that have examples."""
    if not isinstance(value, PerReplica):
        return np.asarray(value.array if isinstance(value, Mirrored) else value)
    rows = rows_of(value)
    full = [row for replica, row in rows.items() if sizes[replica]] or list(rows.values())
    return np.mean(np.stack(full), axis=0)


@final
class StepLogs:
    """The numbers that a step logged on each replica."""

    def __init__(
        self, paths: Iterable[Path], values: Any, sizes: tuple[int, ...], *, record: bool
    ) -> None:
        self._paths = list(paths)
        self._values = values
        self._sizes = sizes
        self._numbers: np.ndarray | None = None
        self._lock = threading.Lock()  # Keras reads them in threads
        recorder = sink.recorder()
        self._step = getattr(recorder, "last_step", -1)
        self._record = record and recorder.enabled

    def items(self) -> dict[Path, LoggedNumber]:
        """Returns each number by its path."""
        return {path: LoggedNumber(self, i) for i, path in enumerate(self._paths)}

    def numbers(self) -> np.ndarray:
        """Waits for the step and returns the mean of the replicas that have examples."""
        with self._lock:
            if self._numbers is None:
                self._numbers = mean_of(self._values, self._sizes)
                self._values = None
                if self._record:
                    names = (path[-1] for path in self._paths)  # as Keras shows them
                    emit(self._step, dict(zip(names, self._numbers.tolist(), strict=True)))
            return self._numbers


@final
class LoggedNumber:
    """One number that a step logged; reading it waits for the step."""

    __slots__ = ("_logs", "_position")

    def __init__(self, logs: StepLogs, position: int) -> None:
        self._logs = logs
        self._position = position

    def __float__(self) -> float:
        """Returns the number."""
        return float(self._logs.numbers()[self._position])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Returns the number as an array of shape ()."""
        del copy
        return np.asarray(self._logs.numbers()[self._position], dtype)

    def __repr__(self) -> str:
        """Shows the number."""
        return repr(float(self))


def flattened(logs: Mapping[str, Any], outer: Path = ()) -> dict[Path, Any]:
    """Returns the values in logs, and in the dicts in them, by their paths."""
    flat: dict[Path, Any] = {}
    for name, value in logs.items():
        path = (*outer, name)
        flat |= flattened(value, path) if isinstance(value, Mapping) else {path: value}
    return flat


def nested(values: Mapping[Path, Any]) -> dict[str, Any]:
    """Returns logs with the values at their paths."""
    logs: dict[str, Any] = {}
    for path, value in values.items():
        place = logs
        for name in path[:-1]:
            place = place.setdefault(name, {})
        place[path[-1]] = value
    return logs


def emit(step: int, values: Mapping[str, float]) -> None:
    """Records numbers as metrics of a step."""
    recorder = sink.recorder()
    if recorder.enabled and values:
        recorder.emit(Metric(time_ns=time.monotonic_ns(), step=step, values=dict(values)))
