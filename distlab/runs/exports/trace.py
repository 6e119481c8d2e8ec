"""A timeline in the Trace Event Format, which Perfetto (ui.perfetto.dev) and Chrome open.

Each process has a track for the Python that called distlab, one for its input, and one
for each replica's device. Times are microseconds since the run's first event. Device
tracks have the steps that were watched: a span goes from when the step was dispatched,
or the one before was ready, to when its results on that device were. An arrow leads
from the call of a step to its spans. Where a profile was captured, each device has a
second track with its activities, and arrows lead from the calls to the collectives in
which it waited for others.
"""

from __future__ import annotations

import gzip
import json
import math
import struct
from bisect import bisect_right
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from distlab.events import (
    Capture,
    Compile,
    DeviceSample,
    Envelope,
    Error,
    Event,
    Lost,
    Metric,
    Reduction,
    Run,
    RunEnd,
    Sharding,
    Step,
    StepReady,
    Strategy,
    Unknown,
)
from distlab.runs.recorded import Recorded, envelopes

Entry = dict[str, Any]

_CALLS: Final = 1
"""The track of the Python calls."""

_INPUT: Final = 2
_REPLICAS: Final = 100
"""The track of the first replica; the replicas of all strategies follow one another."""

_CAPTURED: Final = 50_000
"""The difference between the track of a device's captured spans and that of its replica."""

_ACTIVITIES: Final = ("computing", "waiting for others", "copying")
_WAITING: Final = 1

_SPAN: Final = struct.Struct("<3q")
"""A span of a capture: begin and length in nanoseconds, and its activity."""

_SPANS_KEPT: Final = 4_096
"""Spans of a device that are kept for a capture of the same time."""

_CALLS_KEPT: Final = 100_000
"""Calls of steps that are kept until their results are ready."""


def write(
    run: Recorded,
    path: Path,
    start: float | None = None,
    end: float | None = None,
    *,
    compressed: bool = False,
) -> None:
    """Writes the timeline, or its part between two times in seconds since the run's first event.

    Events are read one after another, however many there are.
    """
    first_us = -math.inf if start is None else 1e6 * start
    last_us = math.inf if end is None else 1e6 * end
    about = {"run": run.meta.get("name", ""), "schema": run.meta.get("schema")}
    between = ""
    with _opened(path, compressed=compressed) as file:
        file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n')
        for entry in _entries(envelopes(run)):
            begin = entry.get("ts")
            if begin is not None and not (
                begin <= last_us and begin + entry.get("dur", 0.0) >= first_us
            ):
                continue
            file.write(between + json.dumps(entry, allow_nan=False))
            between = ",\n"
        file.write("\n]}\n")


def _opened(path: Path, *, compressed: bool) -> IO[str]:
    if compressed:
        return gzip.open(path, "wt", encoding="utf-8", compresslevel=4)
    return path.open("w", encoding="utf-8")


def _entries(events: Iterable[Envelope]) -> Iterator[Entry]:
    """Yields the trace events of a run, whose processes have timelines of their own."""
    timelines: dict[int, Timeline] = {}
    start_ns: int | None = None
    for process, event in events:
        if start_ns is None:
            start_ns = event.time_ns
        if process not in timelines:
            pid = event.process if isinstance(event, Run) else 1
            while any(timeline.pid == pid for timeline in timelines.values()):
                pid += 1  # processes of different hosts may have the same number
            timelines[process] = Timeline(pid, start_ns, process)
            yield from timelines[process].begin()
        yield from timelines[process].entries(event)


class Timeline:
    """Makes trace events of one process's events, in order; it is `pid` in the trace."""

    def __init__(self, pid: int, start_ns: int, process: int = 0) -> None:
        self.pid = pid
        self._process = process
        self._start_ns = start_ns
        self._programs: dict[int, str] = {}
        self._tracks: dict[int, list[int]] = {}
        self._devices: dict[int, str] = {}
        self._ready_ns: dict[int, int] = {}
        self._calls: OrderedDict[int, Step] = OrderedDict()
        self._recent: deque[Step] = deque(maxlen=_SPANS_KEPT)
        self._spans: dict[int, deque[tuple[int, Step]]] = defaultdict(
            lambda: deque(maxlen=_SPANS_KEPT)
        )
        self._makers: dict[type, Callable[[Any], Iterator[Entry]]] = {
            Run: self._run,
            Strategy: self._replicas,
            Step: self._step,
            StepReady: self._ready,
            Compile: self._compile,
            Sharding: self._batch,
            Reduction: self._reduction,
            Metric: self._metric,
            DeviceSample: self._sample,
            Capture: self._capture,
            Error: self._error,
            Lost: self._lost,
            RunEnd: self._end,
        }

    def begin(self) -> Iterator[Entry]:
        """Yields the names of the process and of its Python tracks."""
        yield self._name("process_name", 0, "distlab")
        yield self._name("thread_name", _CALLS, "Python: calls")
        yield self._name("thread_name", _INPUT, "Python: input")

    def entries(self, event: Event | Unknown) -> Iterator[Entry]:
        """Yields the trace events of an event."""
        make = self._makers.get(type(event))
        if make is not None:
            yield from make(event)

    def _run(self, event: Run) -> Iterator[Entry]:
        worker = f", {event.job} {event.task}" if event.job else ""
        yield self._name("process_name", 0, f"{event.name}{worker} on {event.host}")

    def _replicas(self, event: Strategy) -> Iterator[Entry]:
        place = len(self._tracks)
        owned = [
            (replica, device)
            for replica, device in enumerate(event.devices)
            if not event.processes or event.processes[replica] == self._process
        ]
        size = len(owned)
        base = _REPLICAS + sum(len(tracks) for tracks in self._tracks.values())
        self._tracks[event.strategy] = list(range(base, base + size))
        for track, (replica, device) in enumerate(owned, base):
            label = f"{device} (replica {replica} of {event.name} {place})"
            self._devices[track] = label
            yield self._name("thread_name", track, label)

    def _step(self, event: Step) -> Iterator[Entry]:
        self._calls[event.step] = event
        if len(self._calls) > _CALLS_KEPT:
            self._calls.popitem(last=False)
        self._recent.append(event)
        about = {"step": event.step, "examples": event.examples}
        name = f"run {self._programs.get(event.program, '')}".strip()
        yield self._span(_CALLS, name, "step", (event.time_ns, event.dispatched_ns), about)

    def _ready(self, event: StepReady) -> Iterator[Entry]:
        call = self._calls.pop(event.step, None)
        tracks = self._tracks.get(event.strategy, [])
        if call is None or not tracks:
            return
        about = {"step": event.step, "resolution_us": event.resolution_ns / 1e3}
        for track, ready_ns in zip(tracks, event.ready_ns, strict=False):
            begin_ns = max(call.time_ns, self._ready_ns.get(track, 0))
            self._ready_ns[track] = ready_ns
            if ready_ns <= begin_ns:
                continue
            # It was done at some time in the resolution before it was seen to be.
            self._spans[track].append((ready_ns - event.resolution_ns, call))
            name = self._programs.get(call.program, "step")
            yield self._span(track, name, "device", (begin_ns, ready_ns), about)
            yield from self._arrow("dispatch", call, track, begin_ns)

    def _compile(self, event: Compile) -> Iterator[Entry]:
        self._programs[event.program] = event.function
        if event.time_ns <= self._start_ns:
            return  # compiled before the recording began
        about = {"cause": event.cause, "changed": event.changed, "mode": event.mode}
        begin_ns = event.time_ns - event.trace_ns - event.compile_ns
        name = f"compile {event.function}"
        yield self._span(_CALLS, name, "compile", (begin_ns, event.time_ns), about)

    def _batch(self, event: Sharding) -> Iterator[Entry]:
        about = {"batch": event.batch, "sizes": event.parts, "bytes": event.bytes}
        placed_ns = event.time_ns - event.transfer_ns
        waited_ns = placed_ns - event.wait_ns
        yield self._span(_INPUT, "wait for a batch", "input", (waited_ns, placed_ns), about)
        yield self._span(_INPUT, "put on devices", "input", (placed_ns, event.time_ns), about)

    def _sample(self, event: DeviceSample) -> Iterator[Entry]:
        length = max(event.time_ns - event.start_ns, 1)
        memory = {"bytes": event.process_memory_bytes}
        yield self._counter(event.time_ns, "memory of the process", memory)
        for track, busy in zip(self._tracks.get(event.strategy, []), event.busy_ns, strict=False):
            share = {"busy share": min(busy / length, 1.0)}
            yield self._counter(event.time_ns, f"busy share of {self._devices[track]}", share)

    def _capture(self, event: Capture) -> Iterator[Entry]:
        tracks = self._tracks.get(event.strategy, [])
        for track, device, packed in zip(tracks, event.devices, event.spans, strict=False):
            captured = track + _CAPTURED
            yield self._name("thread_name", captured, f"{device}, captured")
            for offset, length, activity in _SPAN.iter_unpack(packed):
                begin = event.start_ns + offset
                span = (begin, begin + length)
                yield self._span(captured, _ACTIVITIES[activity], "capture", span, {})
                call = self._call_of(track, begin) if activity == _WAITING else None
                if call is not None:
                    yield from self._arrow("collective", call, captured, begin)

    def _call_of(self, track: int, time_ns: int) -> Step | None:
        """Returns the call of the step that a device executed at a time: the oldest in flight."""
        for end_ns, call in self._spans[track]:
            if call.time_ns <= time_ns < end_ns:
                return call
        place = bisect_right([step.time_ns for step in self._recent], time_ns)
        return self._recent[place - 1] if place else None

    def _arrow(self, name: str, call: Step, track: int, end_ns: int) -> Iterator[Entry]:
        about = {
            "name": name,
            "cat": name,
            "id": f"{name}.{call.step}.{track}.{end_ns}",
            "pid": self.pid,
        }
        yield {**about, "ph": "s", "tid": _CALLS, "ts": self._us(call.time_ns)}
        yield {**about, "ph": "f", "bp": "e", "tid": track, "ts": self._us(end_ns)}

    def _reduction(self, event: Reduction) -> Iterator[Entry]:
        about = {"bytes": event.bytes, "algorithm": event.algorithm, "op": event.op}
        span = (event.time_ns, event.time_ns + event.duration_ns)
        yield self._span(_CALLS, event.verb, "reduction", span, about)

    def _metric(self, event: Metric) -> Iterator[Entry]:
        for name, value in event.values.items():
            if math.isfinite(value):  # JSON has no others
                yield self._counter(event.time_ns, f"metric {name}", {name: value})

    def _error(self, event: Error) -> Iterator[Entry]:
        what = f"{event.type} in {event.where}"
        yield self._instant(event.time_ns, what, {"message": event.message})

    def _lost(self, event: Lost) -> Iterator[Entry]:
        yield self._instant(event.time_ns, f"{event.count} events lost", {"reason": event.reason})

    def _end(self, event: RunEnd) -> Iterator[Entry]:
        yield self._instant(event.time_ns, f"run {event.status}", {"message": event.message})

    def _us(self, time_ns: int) -> float:
        return max(time_ns - self._start_ns, 0) / 1e3

    def _span(
        self, track: int, name: str, category: str, span: tuple[int, int], about: Entry
    ) -> Entry:
        begin, end = map(self._us, span)
        return {
            "name": name,
            "cat": category,
            "ph": "X",
            "ts": begin,
            "dur": max(end - begin, 0.0),
            "pid": self.pid,
            "tid": track,
            "args": about,
        }

    def _counter(self, time_ns: int, name: str, values: Entry) -> Entry:
        return {
            "name": name,
            "ph": "C",
            "ts": self._us(time_ns),
            "pid": self.pid,
            "args": values,
        }

    def _instant(self, time_ns: int, name: str, about: Entry) -> Entry:
        return {
            "name": name,
            "ph": "i",
            "s": "p",
            "ts": self._us(time_ns),
            "pid": self.pid,
            "tid": _CALLS,
            "args": about,
        }

    def _name(self, what: str, track: int, name: str) -> Entry:
        return {
            "name": what,
            "ph": "M",
            "pid": self.pid,
            "tid": track,
            "args": {"name": name},
        }
