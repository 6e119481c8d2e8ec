"""The busy time of devices, from the times at which steps were dispatched and done.

A device finished a step at some time between two polls. Where the polls are far
apart, because the program held Python's lock meanwhile, the usual duration of
the strategy's steps on that device places the end between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from typing import Final, Literal

import jax

from distlab.devices import jax_internals, selection
from distlab.devices.jax_internals import is_ready
from distlab.devices.pieces import pieces
from distlab.events import Capture, StepReady


class WatchedStep:
    """A step that was dispatched, and the times at which each device finished it.

    A result that was donated to a later step is ready at the poll that finds it `donated`.
    """

    def __init__(self, step: int, start_ns: int, result: jax.Array, devices: int) -> None:
        self.step = step
        self.start_ns = start_ns
        self.unready_ns = [start_ns] * devices
        self.ready_ns = [0] * devices
        self.donated = False
        self._result = result

    def poll(self, now_ns: int, before: Sequence[int] | None = None) -> bool:
        """Polls the devices that were not done; returns whether all are now."""
        try:
            if (before is None or all(before)) and is_ready(self._result):
                self._all_ready(now_ns)
                return True
            for place, (_, piece) in enumerate(pieces(self._result)):
                if self.ready_ns[place] or (before is not None and not before[place]):
                    continue
                if is_ready(piece):
                    self.ready_ns[place] = now_ns
                else:
                    self.unready_ns[place] = now_ns
        except RuntimeError:  # "Array has been deleted"
            self.donated = True
            self._all_ready(now_ns)
        return all(self.ready_ns)

    def _all_ready(self, now_ns: int) -> None:
        self.ready_ns = [ready or now_ns for ready in self.ready_ns]


_LOOK_AFTER: Final = 0.92
"""The share of the time until the expected end of a step after which it is polled."""

_LOOKS_IN_A_STEP: Final = 7
"""The most polls in the usual duration of a step."""

_LONGER_THAN_PROFILED: Final = 1.25
"""The factor by which a step may usually take longer than in a profile. Profiled steps take longer
than others; but of those that a profile sees dispatched, some are computed after it."""

_POLL_AHEAD: Final = 32
"""Steps in flight whose devices are polled one by one: as many as JAX lets a device have."""


class StrategyActivity:
    """The watched steps of one strategy, and the busy times of its devices in replica order."""

    def __init__(self, strategy: int, result: jax.Array) -> None:
        self.devices = jax_internals.devices_of(result)
        self.quiet_windows = 0
        self._strategy = strategy
        self._stepped = False
        self._in_flight: deque[WatchedStep] = deque()
        self._spans: list[list[tuple[int, int]]] = [[] for _ in self.devices]
        self._typical_ns: list[float | None] = [None] * len(self.devices)
        self._service_ns: list[float] | None = None
        self._dispatched_ns = 0
        self._interval_ns = 0.0

    @property
    def basis(self) -> Literal["ready", "profile"]:
        """The source of the times, as in `DeviceSample`."""
        return "ready" if self._service_ns is None else "profile"

    def profiled(self, capture: Capture | None) -> None:
        """Sets how long a step occupies each device, from a profile.

        Where a step was dispatched to a device and is not finished, a CPU device may
        still be idle: the step waits for one of the threads that all devices
        share, and which the steps of a slow device occupy.
        """
        names = [selection.name(device) for device in self.devices]
        if capture is None or capture.devices != names or not capture.steps:
            self._service_ns = None
            return
        self._service_ns = [
            sum(parts) / capture.steps
            for parts in zip(capture.compute_ns, capture.waiting_ns, capture.copy_ns, strict=True)
        ]

    @property
    def in_flight(self) -> int:
        """Number of watched steps that are not known to be done."""
        return len(self._in_flight)

    def add(self, step: int, start_ns: int, result: jax.Array) -> None:
        """Watches a step."""
        self._stepped = True
        self._in_flight.append(WatchedStep(step, start_ns, result, len(self.devices)))
        if self._dispatched_ns:
            self._interval_ns += (start_ns - self._dispatched_ns - self._interval_ns) / 4
        self._dispatched_ns = start_ns

    def next_poll_ns(self, now_ns: int) -> int:
        """Returns when to poll again: shortly before the next step is expected to be done.

        Until then its devices are busy. A step that is done earlier makes the usual shorter.
        """
        usual = max((typical or 0.0 for typical in self._typical_ns), default=0.0)
        if not usual:
            return now_ns
        if self._in_flight:
            before = max(spans[-1][1] if spans else 0 for spans in self._spans)
            end = max(before, self._in_flight[0].start_ns) + usual
        else:
            end = self._dispatched_ns + self._interval_ns + usual
        left = end - now_ns
        # The longer a step is overdue, the less a late poll matters.
        least = max(usual / _LOOKS_IN_A_STEP, -left / 2)
        return round(now_ns + max(_LOOK_AFTER * left, least))

    def poll(self, now_ns: int) -> list[StepReady]:
        """Polls the devices."""
        done = []
        while self._in_flight and self._in_flight[0].poll(now_ns):
            step = self._in_flight.popleft()
            self._note_spans(step)
            if not step.donated:
                done.append(_event(self._strategy, step, now_ns))
        # A device without collectives may be many steps ahead of the slowest one.
        for before, step in pairwise(islice(self._in_flight, _POLL_AHEAD)):
            if not any(before.ready_ns):
                break
            step.poll(now_ns, before.ready_ns)
        return done

    def close_window(self, start_ns: int, end_ns: int) -> list[int]:
        """Returns how long each device was busy in a window, unfinished steps included."""
        busy = []
        for device, spans in enumerate(self._spans):
            unfinished = [
                (step.start_ns, step.ready_ns[device] or end_ns) for step in self._in_flight
            ]
            busy.append(covered_ns(spans + unfinished, start_ns, end_ns))
            spans[:] = [span for span in spans if span[1] > end_ns]
        if self._service_ns is not None:
            busy = _cut(busy, self._service_ns)
        quiet = not self._stepped and not self._in_flight
        self.quiet_windows = self.quiet_windows + 1 if quiet else 0
        self._stepped = False
        return busy

    def forget(self) -> None:
        """Stops watching steps, and releases their results."""
        self._in_flight.clear()
        for spans in self._spans:
            spans.clear()

    def _note_spans(self, step: WatchedStep) -> None:
        """Notes when the devices were busy with a watched step, and learns how long."""
        for device, typical in enumerate(self._typical_ns):
            began, ended = self._note_span(
                device, (step.start_ns, step.unready_ns[device], step.ready_ns[device]), typical
            )
            took = ended - began
            if not step.donated:
                self._typical_ns[device] = took if typical is None else (typical + took) / 2

    def _note_span(
        self, device: int, seen: tuple[int, int, int], usual: float | None
    ) -> tuple[int, int]:
        """Notes when a device was busy with a step."""
        called, unready, ready = seen
        spans = self._spans[device]
        begin = max(called, spans[-1][1] if spans else 0)
        earliest = max(begin, unready)
        latest = max(earliest, ready)
        if usual is None:
            usual = (earliest + latest) / 2 - begin
        if self._service_ns is not None and begin == called:  # it waited for no step before
            usual = min(usual, _LONGER_THAN_PROFILED * self._service_ns[device])
        end = min(max(begin + round(usual), earliest), latest)
        spans.append((called, end))
        return begin, end


def _cut(busy_ns: list[int], service_ns: Sequence[float]) -> list[int]:
    """Cuts busy times by a profile's proportions; the slowest device keeps its own."""
    slowest = max(range(len(service_ns)), key=service_ns.__getitem__)
    scale = busy_ns[slowest] / service_ns[slowest] if service_ns[slowest] else 1.0
    return [
        min(busy, round(service * scale)) for busy, service in zip(busy_ns, service_ns, strict=True)
    ]


def covered_ns(spans: Iterable[tuple[int, int]], start_ns: int, end_ns: int) -> int:
    """Returns how many nanoseconds of a window are covered by at least one span."""
    covered, reached = 0, start_ns
    for span_begin, span_end in spans:
        begin, end = max(span_begin, reached), min(span_end, end_ns)
        if end > begin:
            covered += end - begin
            reached = end
    return covered


def _event(strategy: int, step: WatchedStep, now_ns: int) -> StepReady:
    late = (ready - unready for ready, unready in zip(step.ready_ns, step.unready_ns, strict=True))
    return StepReady(
        time_ns=now_ns,
        step=step.step,
        strategy=strategy,
        ready_ns=list(step.ready_ns),
        resolution_ns=max(late),
    )
