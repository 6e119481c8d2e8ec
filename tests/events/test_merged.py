"""Events of several processes come in one order, on one clock, each of them once."""

from __future__ import annotations

import typing
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from distlab import events
from distlab.events import Chunk, ClockOffset, Event, Source, Step, StepReady, Unknown
from distlab.events.merged import PATIENCE_SECONDS, Merged, Origin, on_clock

Written = tuple[int, int, int]
"""An event as tests compare it: process, number, time."""


class Log:
    """The events of one process; more may be added."""

    def __init__(self, process: int, times: Sequence[int] = ()) -> None:
        self.process = process
        self.live = False
        self.events: list[Event | Unknown] = []
        self.add(times)

    def add(self, times: Sequence[int]) -> None:
        for time_ns in times:
            self.events.append(step(len(self.events), time_ns))

    def since(self, cursor: int, limit: int = 10_000) -> Chunk:
        found = self.events[cursor : cursor + limit]
        return Chunk(found, cursor + len(found), 0, (self.process,))


def step(number: int, time_ns: int) -> Step:
    return Step(
        time_ns=time_ns, step=number, program=0, strategy=0, dispatched_ns=time_ns + 1, examples=1
    )


def written(chunk: Chunk) -> list[Written]:
    return [(p, e.step, e.time_ns) for p, e in chunk.envelopes() if isinstance(e, Step)]


def read(source: Source, cursor: int = 0, limit: int = 7) -> list[Written]:
    """Reads from a cursor to the present end."""
    found: list[Written] = []
    while (chunk := source.since(cursor, limit)).events:
        assert chunk.cursor == cursor + len(chunk.events)
        assert len(chunk.events) <= limit
        assert chunk.lost == 0
        found += written(chunk)
        cursor = chunk.cursor
    assert chunk.cursor == cursor
    return found


def in_order(logs: Sequence[Log], offsets: Sequence[int]) -> list[Written]:
    """The order that is expected: by the latest time up to an event, then by process."""
    rows = []
    for log, offset in zip(logs, offsets, strict=True):
        latest = -(1 << 63)
        for event in log.events:
            latest = max(latest, event.time_ns + offset)
            assert isinstance(event, Step)
            rows.append((latest, log.process, event.step, event.time_ns + offset))
    return [(process, number, time_ns) for _, process, number, time_ns in sorted(rows)]


nearly_in_order = st.lists(st.integers(0, 40), max_size=60).map(
    lambda late: [max(3 * number - by, 0) for number, by in enumerate(late)]
)
processes = st.lists(st.tuples(nearly_in_order, st.integers(-50, 50)), min_size=1, max_size=4)


@settings(deadline=None)  # it reads many sources from many places
@given(given=processes, limit=st.integers(1, 50), cursors=st.lists(st.integers(0, 250)))
def test_every_event_comes_once_in_order_and_any_cursor_goes_on(
    given: list[tuple[list[int], int]], limit: int, cursors: list[int]
) -> None:
    logs = [Log(process, times) for process, (times, _) in enumerate(given)]
    offsets = [offset for _, offset in given]
    origins = [Origin(log, offset) for log, offset in zip(logs, offsets, strict=True)]
    source = Merged(origins)
    expected = in_order(logs, offsets)
    assert read(source, limit=limit) == expected
    for cursor in cursors:
        # Both what was read and a source that is opened later find the place.
        for opened in (Merged(origins), Merged(origins), source):
            assert read(opened, cursor, limit) == expected[cursor:]
            vector = opened.vector(cursor)
            assert sum(vector) == min(cursor, len(expected))
            assert all(
                vector[place] == sum(p == place for p, _, _ in expected[:cursor])
                for place in range(len(logs))
            )


@given(
    stored=st.lists(
        st.tuples(st.integers(0, 2), st.lists(st.integers(0, 99), min_size=1, max_size=5)),
        max_size=30,
    ),
    limit=st.integers(1, 20),
)
def test_events_stored_late_are_not_lost_and_keep_numbers(
    stored: list[tuple[int, list[int]]], limit: int
) -> None:
    logs = [Log(process) for process in range(3)]
    source = Merged([Origin(log) for log in logs])
    found: list[Written] = []
    for process, times in stored:
        logs[process].add(times)
        found += read(source, len(found), limit)
    assert sorted(found) == sorted(in_order(logs, [0, 0, 0]))
    assert read(source, 0, limit) == found
    for log in logs:
        own = [number for process, number, _ in found if process == log.process]
        assert own == sorted(own)


def test_event_waits_for_earlier_ones_within_a_limit() -> None:
    now = 0.0
    quick, slow = Log(0, [10, 30]), Log(1)
    slow.live = True
    source = Merged([Origin(quick), Origin(slow, live=lambda: slow.live)], lambda: now)
    assert source.since(0).events == []
    slow.add([20])
    assert read(source) == [(0, 0, 10), (1, 0, 20)]
    now += PATIENCE_SECONDS
    assert read(source, 2) == [(0, 1, 30)]
    quick.add([40])
    assert source.since(3).events == []
    slow.live = False
    assert read(source, 3) == [(0, 2, 40)]


def test_many_sources_keep_their_numbers() -> None:
    logs = [Log(process, [process % 7, *range(9, 49)]) for process in range(300)]
    source = Merged([Origin(log) for log in logs])
    expected = in_order(logs, [0] * 300)
    assert read(source, 0, 1_000) == expected
    for cursor in (411, 4_096, 9_000, 12_299):
        assert read(source, cursor, 1_000) == expected[cursor:]
        assert read(Merged([Origin(log) for log in logs]), cursor, 1_000) == expected[cursor:]
        assert source.vector(cursor) == tuple(
            sum(process == place for process, _, _ in expected[:cursor]) for place in range(300)
        )


def test_all_times_of_an_event_move_to_the_common_clock() -> None:
    ready = StepReady(time_ns=5, step=0, strategy=0, ready_ns=[3, 4], resolution_ns=2)
    moved = on_clock(ready, 10)
    assert moved == msgspec.structs.replace(ready, time_ns=15, ready_ns=[13, 14])
    assert on_clock(ready, 0) is ready
    strange = Unknown(time_ns=5, kind="weather", fields={"sky": 1})
    assert on_clock(strange, -5) == Unknown(time_ns=0, kind="weather", fields={"sky": 1})


def test_moments_are_the_fields_described_as_monotonic_times() -> None:
    for kind in typing.get_args(events.AnyEvent):
        entries = " ".join(kind.__doc__.split())
        described = {
            name
            for name in kind.__struct_fields__
            if f"{name}: Monotonic time" in entries and name.endswith("_ns")
        }
        assert set(kind.MOMENTS) == described | {"time_ns"}, kind
        types = typing.get_type_hints(kind)
        assert {types[name] for name in kind.MOMENTS} <= {int, list[int]}, kind


def test_from_a_new_offset_on_events_are_moved_by_it() -> None:
    log = Log(1, [10, 20])
    log.events.append(ClockOffset(time_ns=25, offset_ns=105, error_ns=1))
    log.add([30])
    log.add([24])  # nearly in order: it happened before the clock was compared
    both = Merged([Origin(Log(0, [115, 134])), Origin(log, 100)])
    wanted = [(0, 0, 115), (1, 0, 110), (1, 1, 120), (0, 1, 134), (1, 3, 135), (1, 4, 124)]
    assert sorted(read(both)) == sorted(wanted)
    assert [read(both, cursor, limit=1) for cursor in range(8)] == [
        read(both, cursor) for cursor in range(8)
    ]
    assert ClockOffset(time_ns=130, offset_ns=105, error_ns=1) in both.since(0).events
