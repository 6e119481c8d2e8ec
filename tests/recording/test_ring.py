from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from distlab.events import Event, Lost, Sharding, Step, Unknown
from distlab.recording.ring import Ring
from tests.recording import samples


def numbers(events: list[Event | Unknown]) -> list[int]:
    return [event.step for event in events if isinstance(event, Step)]


def filled(count: int, **bounds: int) -> Ring:
    ring = Ring(**bounds)
    for number in range(count):
        ring.append(samples.step(number))
    return ring


def test_a_cursor_goes_on_where_the_last_chunk_ended() -> None:
    ring = filled(1_000)
    seen: list[int] = []
    cursor = 0
    for _ in range(4):
        chunk = ring.since(cursor, limit=300)
        seen += numbers(chunk.events)
        cursor = chunk.cursor
    assert seen == list(range(1_000))
    assert ring.since(cursor).events == []
    assert ring.since(cursor).cursor == cursor


def test_an_overflow_says_how_many_are_lost() -> None:
    ring = filled(5_000, capacity=1_000)
    chunk = ring.since(100)
    kept = numbers(chunk.events)
    assert kept == list(range(kept[0], 5_000))
    assert 872 <= len(kept) <= 1_128
    assert chunk.lost == kept[0] - 100


def test_standing_events_outlive_the_bounds_and_come_first() -> None:
    ring = Ring(capacity=500)
    for event in (samples.strategy(), samples.placement(1), samples.compiled()):
        ring.append(event)
    for number in range(3_000):
        ring.append(samples.step(number))
    chunk = ring.since(0)
    assert chunk.events[:3] == [samples.strategy(), samples.placement(1), samples.compiled()]
    assert numbers(chunk.events)[-1] == 2_999
    assert chunk.lost == 3_003 - len(chunk.events)
    assert ring.since(1, limit=1).events == [samples.placement(1)]


def test_a_freed_placement_is_forgotten_with_its_free() -> None:
    ring = Ring(capacity=500)
    ring.append(samples.placement(1))
    ring.append(samples.placement(2))
    ring.append(samples.placement(1, "free"))
    for number in range(3_000):
        ring.append(samples.step(number))
    assert ring.since(0, limit=1).events == [samples.placement(2)]


def test_large_batches_are_bounded_by_their_bytes() -> None:
    ring = Ring(payload_bytes=1 << 20)
    for batch in range(4_096):
        ring.append(samples.sharding(batch, b"\0" * 4_096))
    kept = [event for event in ring.since(0).events if isinstance(event, Sharding)]
    assert 128 <= len(kept) <= 384
    assert kept[-1].batch == 4_095


def test_previews_share_the_bound_on_bytes() -> None:
    ring = Ring(capacity=200, payload_bytes=100_000)
    for number in range(500):
        ring.append(samples.preview(bytes(1_000)))
        ring.append(samples.step(number))
    standing, _ = ring.pin()
    assert 90 <= len(standing) <= 99


def test_a_pinned_reader_misses_nothing() -> None:
    ring = Ring(capacity=500)
    _, pin = ring.pin()
    for number in range(5_000):
        ring.append(samples.step(number))
    assert numbers(ring.since(pin.cursor).events) == list(range(5_000))
    ring.unpin(pin)
    for number in range(5_000, 5_200):
        ring.append(samples.step(number))
    assert len(ring.since(0).events) <= 700


def test_a_pin_that_never_moves_has_a_bound_too() -> None:
    ring = Ring(capacity=500)
    _, pin = ring.pin()
    for number in range(20_000):
        ring.append(samples.step(number))
    chunk = ring.since(pin.cursor, limit=100_000)
    assert len(chunk.events) <= 16 * 500 + 128
    assert chunk.lost == 20_000 - len(chunk.events)


def test_threads_append_and_read_at_once_without_loss() -> None:
    ring = Ring(capacity=1_000_000)
    writers = 4
    each = 5_000
    read: list[Event | Unknown] = []

    def write(first: int) -> None:
        for number in range(first, first + each):
            ring.append(samples.step(number))

    threads = [threading.Thread(target=write, args=(n * each,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    cursor = 0
    while any(thread.is_alive() for thread in threads) or cursor < ring.end:
        chunk = ring.since(cursor)
        assert chunk.lost == 0
        read += chunk.events
        cursor = chunk.cursor
    assert sorted(numbers(read)) == list(range(writers * each))
    for writer in range(writers):
        mine = [n for n in numbers(read) if writer * each <= n < (writer + 1) * each]
        assert mine == sorted(mine)


def test_appending_does_not_wait_for_a_reader() -> None:
    ring = filled(127)
    reading, appended = threading.Event(), threading.Event()

    def read() -> None:
        with ring._lock:
            reading.set()
            assert appended.wait(60)

    reader = threading.Thread(target=read)
    reader.start()
    assert reading.wait(60)
    for number in range(127, 400):
        ring.append(samples.step(number))
    appended.set()
    reader.join(60)
    ring.append(Lost(time_ns=0, count=1, reason="last"))
    chunk = ring.since(0)
    assert numbers(chunk.events) == list(range(400))
    assert chunk.cursor == 401


def test_a_finaliser_may_append_while_its_thread_reads() -> None:
    class Reading(Ring):
        def _from(self, cursor: int) -> Iterator[tuple[int, Event]]:
            for found in super()._from(cursor):
                if self.end < 400:  # more than a block
                    self.append(samples.step(self.end))
                yield found

    ring = Reading()
    for number in range(300):
        ring.append(samples.step(number))
    assert numbers(ring.since(0).events)[:300] == list(range(300))
    assert numbers(ring.since(0).events) == list(range(400))


@pytest.mark.parametrize("moment", ["acquired", "released"])
def test_an_interrupt_does_not_leave_the_ring_locked(moment: str) -> None:
    """Ctrl-C between two instructions of an append stopped all readers for good."""
    ring = filled(127)
    lock = ring._lock

    class Interrupted:
        def acquire(self, *, blocking: bool) -> bool:
            found = lock.acquire(blocking=blocking)
            if moment == "acquired":
                raise KeyboardInterrupt
            return found

        def release(self) -> None:
            lock.release()
            if moment == "released":
                raise KeyboardInterrupt

    vars(ring)["_lock"] = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ring.append(samples.step(127))
    vars(ring)["_lock"] = lock
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: ring.end).result(60) == 128
    ring.append(samples.step(128))
    assert numbers(ring.since(0).events) == list(range(129))


class _Interrupt(BaseException):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in collections
def test_interrupts_at_any_moment_lose_and_double_no_event() -> None:
    def interrupt(*_: object) -> None:
        raise _Interrupt

    ring, chance = Ring(1_000_000), random.Random(0)
    appended: list[int] = []
    interrupted = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for start in range(0, 600_000, 200):
            if interrupted == 150:
                break
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 1.5e-4))
                for number in range(start, start + 200):
                    ring.append(samples.step(number))
                    appended.append(number)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except _Interrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    chunk = ring.since(0, 1_000_000)
    found = numbers(chunk.events)
    assert interrupted == 150
    assert found == sorted(set(found))
    assert set(appended) <= set(found)
    # An append may have been interrupted once the event was there.
    assert chunk.cursor == len(found) <= len(appended) + interrupted
