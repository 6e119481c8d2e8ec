"""The activities of each device in a profile: computing, waiting, copying.

CPU devices are threads of one process: an operation's event names the device it
belongs to (`device_ordinal`), and a `Rendezvous` inside of it is the wait for the
others in a collective. Between processes there is no such event: a collective counts as
waiting as a whole. GPUs and TPUs have a plane of their own, named after the platform and
the device's number in this process; its lines of operations count, and not those in which
XLA sums them up as steps, modules and scopes. Their collectives are recognised by name, and
count as waiting as a whole, since the wait is part of the operation there.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from distlab.errors import CaptureError
from distlab.profiling.profile import ANCHOR
from distlab.profiling.step_work import COLLECTIVE, Operations, Program

Spans = npt.NDArray[np.int64]
"""Begins and ends in nanoseconds, `(n, 2)`, in order and apart from each other."""

COMPUTE, WAITING, COPY = range(3)

_CLOSE_NS: Final = 1_000
"""Spans of one activity that are closer than this are one."""

_NONE: Final = np.empty((0, 2), np.int64)
_DEVICE_PLANE: Final = re.compile(r"/device:(GPU|TPU):(\d+)")
_ASYNCHRONOUS: Final = "Async XLA Ops"
"""The line of a TPU's collectives and copies beside its operations."""

_OPERATION_LINES: Final = {"GPU": re.compile("Stream"), "TPU": re.compile("(Async )?XLA Ops$")}
_DEVICE_COLLECTIVE: Final = re.compile(
    r"nccl|rccl|all[-_]?reduce|all[-_]?gather|reduce[-_]?scatter|collective|all[-_]?to[-_]?all",
    re.IGNORECASE,
)
_COPY: Final = re.compile(r"copy|memcpy", re.IGNORECASE)
_RENDEZVOUS: Final = "Rendezvous"
_OF_OPERATIONS: Final = frozenset({"device_ordinal", "hlo_op", "hlo_module", "program_id"})
_REDUCING: Final = "InvokeRendezvous"


_Span: TypeAlias = tuple[float, float]


class DeviceSpans(NamedTuple):
    """The activities of one device; no moment is in two of them."""

    compute: Spans  # Spans in which it ran operations
    waiting: Spans  # Spans in which it did nothing but wait for others in a collective
    copy: Spans


DeviceKey: TypeAlias = tuple[str, int]
"""The platform of a device and its number in a profile."""

_Found: TypeAlias = tuple[list[Spans], list[Spans], list[Spans]]
"""Spans of one device by activity, as the profile has them."""


def key_of(device: jax.Device) -> DeviceKey:
    """Returns a device's key: CPU devices have their number in JAX, others that of the hardware."""
    if device.platform == "cpu":
        return "CPU", device.id
    return device.platform.upper(), int(device.local_hardware_id or 0)


_ONE_EVENT: Final = b"\x0a\x04\x1a\x02\x22\x00"
"""A serialised `XSpace` that holds one event: a plane, with a line, with the event."""


@functools.cache
def _keep_types() -> Iterator[Any]:
    """Keeps the type of statistics, whose making aborts Python 3.13 where warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        data = jax.profiler.ProfileData.from_serialized_xspace(_ONE_EVENT)
        events = (event for plane in data.planes for line in plane.lines for event in line.events)
        return iter(next(events).stats)


def read_spans(
    profile: bytes, anchor_ns: int, operations: Operations
) -> dict[DeviceKey, DeviceSpans]:
    """Reads the activities of each device from a profile."""
    if not profile:
        raise CaptureError("The profiler returned an empty profile. Capture again.")
    _keep_types()
    try:
        planes = list(jax.profiler.ProfileData.from_serialized_xspace(profile).planes)
    except Exception as error:
        raise CaptureError(
            f"The profile that JAX took can't be read ({error}). Capture again."
        ) from error
    return spans_of(planes, anchor_ns, operations)


def spans_of(
    planes: Sequence[Any], anchor_ns: int, operations: Operations
) -> dict[DeviceKey, DeviceSpans]:
    """Reads the planes of a profile; see `read_spans`."""
    found: dict[DeviceKey, _Found] = defaultdict(lambda: ([], [], []))
    anchor: float | None = None
    for plane in planes:
        device = _DEVICE_PLANE.match(plane.name)
        for line in plane.lines:
            if device is not None:
                if _OPERATION_LINES[device[1]].match(line.name):
                    other = COPY if line.name == _ASYNCHRONOUS else COMPUTE
                    _read_stream(line.events, found[device[1], int(device[2])], other)
            else:
                at = _read_thread(line.events, found, operations)
                anchor = at if anchor is None else anchor
    if anchor is None:
        raise CaptureError(
            "The profile lost its beginning, so its times are unknown. Capture again."
        )
    shift = anchor_ns - round(anchor)
    return {device: _apart(spans, shift) for device, spans in sorted(found.items())}


def _read_stream(events: Iterable[Any], found: _Found, other: int) -> None:
    """Adds the operations on a stream of a GPU or a core of a TPU; most are of kind `other`."""
    by_activity: tuple[list[_Span], ...] = ([], [], [])
    for event in events:
        activity = other
        if _DEVICE_COLLECTIVE.search(event.name):
            activity = WAITING
        elif _COPY.search(event.name):
            activity = COPY
        by_activity[activity].append((event.start_ns, event.start_ns + event.duration_ns))
    for kept, spans in zip(found, by_activity, strict=True):
        kept.append(union(spans))


def _read_thread(
    events: Iterable[Any], found: dict[DeviceKey, _Found], operations: Operations
) -> float | None:
    """Adds a thread's operations and waits; returns the anchor's time, if it is here."""
    thread = _Thread(operations, between_processes=jax.process_count() > 1)
    rows = [
        (event.start_ns, -event.duration_ns, place, name, event)
        for place, event in enumerate(events)
        if not (name := event.name).startswith("end: ")
    ]
    rows.sort()  # an operation comes before the events inside of it
    for begin, minus, _, name, event in rows:
        thread.add(name, (begin, begin - minus), event)
    thread.add_to(found)
    return thread.anchor


class _Thread:
    """The operations of one thread, which serves several devices in turn."""

    def __init__(self, operations: Operations, *, between_processes: bool = False) -> None:
        operations.begin_thread()
        self._all_operations = operations
        self._between_processes = between_processes
        self.anchor: float | None = None
        self._operations: dict[int, list[_Span]] = defaultdict(list)
        self._copies: dict[int, list[_Span]] = defaultdict(list)
        self._waits: dict[int, list[_Span]] = defaultdict(list)
        self._reducing: list[_Span] = []
        self._device, self._program, self._until = -1, Program("", 0), 0.0
        self._other: set[str] = set()
        self._inner: dict[str, bool] = {}

    def add(self, name: str, span: _Span, event: Any) -> None:
        """Adds an event; events come in the order of their begins, outer ones first."""
        inside = span[0] <= self._until
        if name == _REDUCING:
            self._reducing.append(span)
        elif inside and name == _RENDEZVOUS:
            self._waits[self._device].append(span)
        elif inside:
            if span[1] <= self._until:
                self._add_inner(name, span, event)
        elif name == ANCHOR:
            self.anchor = span[0]
        elif name not in self._other:
            self._begin_operation(name, span, event)

    def _add_inner(self, name: str, span: _Span, event: Any) -> None:
        """Adds an event inside of an operation, on the same device."""
        if _COPY.match(name):
            self._copies[self._device].append(span)
        # Reading what each event is would take most of the time.
        if name not in self._inner:
            self._inner[name] = _place_of(event) is not None
        if self._inner[name]:
            self._all_operations.add(self._device, self._program, name, span)

    def _begin_operation(self, name: str, span: _Span, event: Any) -> None:
        place = _place_of(event)
        if place is None:
            self._other.add(name)
            return
        device, self._program = place
        self._device, self._until = device, span[1]
        self._all_operations.add(device, self._program, name, span)
        self._operations[device].append(span)
        if self._between_processes and COLLECTIVE.match(name):
            self._waits[device].append(span)
        if _COPY.match(name):
            self._copies[device].append(span)

    def add_to(self, found: dict[DeviceKey, _Found]) -> None:
        """Adds the activities of each device in this thread."""
        for device, spans in self._operations.items():
            waiting = without(union(self._waits[device]), union(self._reducing))
            copying = union(self._copies[device])
            computing = without(without(union(spans), waiting), copying)
            for kept, own in zip(found["CPU", device], (computing, waiting, copying), strict=True):
                kept.append(own)


def _place_of(event: Any) -> tuple[int, Program] | None:
    """Returns the device and the program of an operation, None for other events."""
    found = {name: value for name, value in event.stats if name in _OF_OPERATIONS}
    if "device_ordinal" not in found or "hlo_op" not in found:
        return None
    program = Program(str(found.get("hlo_module", "")), int(found.get("program_id", 0)))
    return int(found["device_ordinal"]), program


def _apart(found: _Found, shift: int) -> DeviceSpans:
    compute, waiting, copy = map(_joined, found)
    copy = without(copy, compute)
    waiting = without(without(waiting, compute), copy)
    return DeviceSpans(*(s + shift for s in (compute, waiting, copy)))


def _joined(spans: list[Spans]) -> Spans:
    return union(np.concatenate(spans)) if spans else _NONE


def union(spans: Iterable[tuple[float, float]] | Spans) -> Spans:
    """Returns spans that cover the same times, in order, with no two close to each other."""
    rows = np.asarray(list(spans), np.float64).reshape(-1, 2).round().astype(np.int64)
    rows = rows[rows[:, 1] > rows[:, 0]]
    if not len(rows):
        return _NONE
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    reach = np.maximum.accumulate(rows[:, 1])
    first = np.concatenate([[True], rows[1:, 0] > reach[:-1] + _CLOSE_NS])
    last = np.concatenate([first[1:], [True]])
    return np.stack([rows[first, 0], reach[last]], axis=1)


def without(spans: Spans, taken: Spans) -> Spans:
    """Returns the parts of `spans` that `taken` does not cover; both as `union` returns them."""
    if not len(spans) or not len(taken):
        return spans
    return np.array(list(_parts(spans.tolist(), taken.tolist())), np.int64).reshape(-1, 2)


def _parts(spans: list[list[int]], taken: list[list[int]]) -> Iterator[tuple[int, int]]:
    place = 0
    for begin, end in spans:
        while place < len(taken) and taken[place][1] <= begin:
            place += 1
        at, ahead = begin, place
        while ahead < len(taken) and taken[ahead][0] < end:
            if taken[ahead][0] > at:
                yield at, taken[ahead][0]
            at = max(at, taken[ahead][1])
            ahead += 1
        if at < end:
            yield at, end


def clipped(spans: Spans, begin_ns: int, end_ns: int) -> Spans:
    """Returns the parts of spans between two times."""
    rows = np.clip(spans, begin_ns, end_ns)
    return rows[rows[:, 1] > rows[:, 0]]


def length_ns(spans: Spans) -> int:
    """Returns the total length of spans, in nanoseconds."""
    return int((spans[:, 1] - spans[:, 0]).sum())
