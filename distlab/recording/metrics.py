"""Logged numbers: values that are still being computed wait here, never in the caller."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax

from distlab.devices.jax_internals import for_another_thread, is_ready
from distlab.events import Event, Lost, Metric
from distlab.profiling.helper_thread import HelperThread
from distlab.recording.logged import checked_name, checked_number, whole_step

_POLL_SECONDS: Final = 0.01
_IDLE_SECONDS: Final = 60.0
_FLUSH_SECONDS: Final = 10.0
_CAPACITY: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Pending:
    time_ns: int
    step: Any
    values: dict[str, Any]

    def known(self) -> bool:
        """Returns whether no value is JAX's."""
        return not any(isinstance(value, jax.Array) for value in (self.step, *self.values.values()))

    def ready(self) -> bool:
        """Returns whether the step and the values can be read without waiting."""
        return all(map(_readable, (self.step, *self.values.values())))


class Metrics:
    """Turns logged values into `Metric` events, in the order of the calls.

    A thread polls a value that JAX is still computing; values logged later wait behind it.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._pending: deque[_Pending] = deque()
        self._not_finite: dict[str, tuple[int, float]] = {}
        self._unread = ""
        self._lock = threading.RLock()  # a signal handler may log amid `log`
        self._thread = HelperThread("distlab metrics", self._resolve_on)

    def log(self, step: Any, values: Mapping[str, Any]) -> None:
        """Accepts numbers. Never waits for one, and never makes JAX wait."""
        numbers = {
            checked_name(name): _own(checked_number(name, value)) for name, value in values.items()
        }
        pending = _Pending(time.monotonic_ns(), _own(step), numbers)
        with self._lock:
            if not self._pending and pending.known():
                self._resolve(pending)
                return
            if len(self._pending) >= _CAPACITY:
                reason = f"More than {_CAPACITY} logged values were waiting to be computed."
                self._emit(Lost(time_ns=pending.time_ns, count=1, reason=reason))
                return
            first = not self._pending
            self._pending.append(pending)
        if first:
            self._thread.wake()

    def take_warnings(self) -> tuple[str, dict[str, tuple[int, float]]]:
        """Returns, once, why a value was lost, and the step and value of metrics not finite.

        The first of each since the last call: values are read in another thread than that which
        logs and is to be warned.
        """
        if not self._unread and not self._not_finite:
            return "", {}
        with self._lock:
            taken = self._unread, self._not_finite
            self._unread, self._not_finite = "", {}
        return taken

    def flush(self, seconds: float = _FLUSH_SECONDS) -> None:
        """Waits until all values logged so far are emitted."""
        limit = time.monotonic() + seconds
        while self._pending and time.monotonic() < limit:
            self._resolve_ready()
            time.sleep(_POLL_SECONDS if self._pending else 0)
        with self._lock:
            if self._pending:
                reason = f"Logged values were not computed {seconds:g} s after the end."
                self._emit(
                    Lost(time_ns=time.monotonic_ns(), count=len(self._pending), reason=reason)
                )
                self._pending.clear()

    def _resolve_on(self) -> None:
        while not self._thread.stopping:
            self._resolve_ready()
            if self._pending:
                time.sleep(_POLL_SECONDS)
            else:
                self._thread.rest(_IDLE_SECONDS)

    def _resolve_ready(self) -> None:
        with self._lock:
            while self._pending and self._pending[0].ready():
                self._resolve(self._pending.popleft())

    def _resolve(self, pending: _Pending) -> None:
        """Emits values that are ready; reports those that can't be read any more."""
        try:
            least = 0 if isinstance(pending.step, jax.Array) else -1
            step = whole_step(pending.step, least)
        except Exception as error:  # noqa: BLE001 - a failed computation raises anything here
            names = ", ".join(map(repr, pending.values))
            self._report(f"The step of {names} {_why_unread(pending.step, error)}")
            return
        values: dict[str, float] = {}
        for name, value in pending.values.items():
            try:
                values[name] = float(value)
            except Exception as error:  # noqa: BLE001 - as above
                self._report(f"The value logged as {name!r} {_why_unread(value, error)}")
            else:
                if not math.isfinite(values[name]):
                    self._not_finite.setdefault(name, (step, values[name]))
        if values:
            self._emit(Metric(time_ns=pending.time_ns, step=step, values=values))

    def _report(self, reason: str) -> None:
        self._unread = self._unread or reason[:2_000]
        self._emit(Lost(time_ns=time.monotonic_ns(), count=1, reason=reason[:2_000]))


def _own(value: Any) -> Any:
    """Returns an array for the thread that waits for it; anything else unchanged."""
    if not isinstance(value, jax.Array) or value.is_deleted():
        return value
    return for_another_thread(value)


def _why_unread(value: Any, error: Exception) -> str:
    if isinstance(value, jax.Array) and value.is_deleted():
        return (
            "was deleted, or donated to a call, before it was read. Log the result of that call, "
            "or a copy (jax.numpy.copy)."
        )
    return f"could not be read: {error}"


def _readable(value: Any) -> bool:
    """Returns whether a value can be read without waiting, or can't be read at all."""
    if not isinstance(value, jax.Array) or value.is_deleted():
        return True
    try:
        return is_ready(value)
    except RuntimeError:  # it was deleted meanwhile
        return True
