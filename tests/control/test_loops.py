"""Loops that are paused, stepped, resumed and stopped from another thread."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import distlab as dl
from distlab.control.loops import LoopControl, begin_anew, loops, own
from distlab.errors import ArgumentTypeError
from distlab.events import Loop, sink
from tests.patience import LIMIT_SECONDS, wait_until


class Worker:
    """A loop over the numbers in a thread of its own, which says how far it is."""

    def __init__(self, count: int = 1_000_000, **options: Any) -> None:
        self.taken: list[int] = []
        self.wanted = threading.Semaphore(0)
        self.free = False
        self.thread = threading.Thread(target=self._work, args=(count, options), daemon=True)
        before = set(map(id, loops()))
        self.thread.start()
        wait_until(lambda: any(id(c) not in before for c in loops()), "the loop")
        self.control: LoopControl = next(c for c in loops() if id(c) not in before)
        # A loop that is paused any earlier pauses before it.
        wait_until(lambda: bool(self.taken), "the first element")

    def _work(self, count: int, options: dict[str, Any]) -> None:
        for number in dl.controlled(range(count), **options):
            self.taken.append(number)
            if not self.free:
                self.wanted.acquire(timeout=LIMIT_SECONDS)

    def wait_for(self, state: str) -> None:
        wait_until(lambda: self.control.state == state, state)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.free = True
    made.control.stop()
    made.wanted.release()
    made.thread.join(LIMIT_SECONDS)
    assert not made.thread.is_alive()


class Notes(sink.NullRecorder):
    """Keeps what is emitted."""

    enabled = True

    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, event: Any) -> None:
        self.events.append(event)


def test_the_elements_are_those_of_the_iterable_in_their_order() -> None:
    looped = dl.controlled([3, 1, 2])
    assert list(looped) == [3, 1, 2]
    assert list(looped) == [3, 1, 2]  # a new loop begins again


def test_a_paused_loop_finishes_its_element_and_takes_no_other(worker: Worker) -> None:
    wait_until(lambda: worker.taken == [0], "the first element")
    worker.control.pause()
    assert worker.control.state == "pausing"
    worker.wanted.release()
    worker.wait_for("paused")
    assert worker.taken == [0]
    assert worker.control.position == 1


def test_a_step_takes_one_element_and_waits_again(worker: Worker) -> None:
    worker.control.pause()
    worker.free = True
    worker.wanted.release()
    worker.wait_for("paused")
    for expected in ([0, 1], [0, 1, 2]):
        worker.control.step()
        wait_until(lambda: worker.control.state == "paused", "the pause after the step")
        assert worker.taken == expected


def test_a_resumed_loop_goes_on_until_it_is_stopped(worker: Worker) -> None:
    worker.control.pause()
    worker.free = True
    worker.wanted.release()
    worker.wait_for("paused")
    worker.control.resume()
    wait_until(lambda: len(worker.taken) > 100, "100 elements")
    worker.control.stop()
    worker.thread.join(LIMIT_SECONDS)
    assert worker.control.state == "stopped"
    assert worker.taken == list(range(len(worker.taken)))
    assert len(worker.taken) < 1_000_000
    assert worker.control not in loops()


def test_a_pause_that_nobody_ends_ends_by_itself() -> None:
    worker = Worker(3, pause_seconds=0.3)
    worker.control.pause()
    worker.free = True
    worker.wanted.release()
    worker.wait_for("paused")
    worker.thread.join(LIMIT_SECONDS)
    assert worker.taken == [0, 1, 2]
    assert worker.control.state == "between loops"


def test_a_pause_holds_also_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    notes, control, again = Notes(), own(), threading.Event()
    monkeypatch.setattr(sink, "in_force", notes)

    def press() -> None:
        wait_until(lambda: control.state == "paused", "the pause")
        _thread.interrupt_main()
        again.wait(LIMIT_SECONDS)
        wait_until(lambda: control.state == "paused", "the pause of the next loop")
        control.resume()

    thread = threading.Thread(target=press)
    thread.start()
    control.pause()
    with pytest.raises(KeyboardInterrupt):
        list(dl.controlled(range(3)))
    assert control.state == "pausing"
    again.set()
    assert list(dl.controlled(range(3))) == [0, 1, 2]
    thread.join(LIMIT_SECONDS)
    states = [event.state for event in notes.events if isinstance(event, Loop)]
    assert states.count("paused") == 2


def test_a_click_between_two_loops_counts_for_the_next_one() -> None:
    control = own()
    for _ in dl.controlled(range(1)):
        assert control in loops()
    states = [control.state]
    control.stop()
    states.append(control.state)
    assert states == ["between loops", "stopped"]
    assert list(dl.controlled(range(3))) == []
    begin_anew()
    assert control not in loops()
    assert list(dl.controlled(range(3))) == [0, 1, 2]


def test_an_order_that_comes_after_its_program_does_nothing() -> None:
    control = own()
    assert list(dl.controlled(range(1))) == [0]
    place = control.earliest("stop")
    begin_anew()
    control.obey("stop", place)
    assert list(dl.controlled(range(3))) == [0, 1, 2]


def test_a_pause_and_a_stop_hold_for_later_epochs() -> None:
    control = own()
    taken: list[tuple[int, int]] = []

    def press() -> None:
        wait_until(lambda: control.state == "paused", "the pause")
        control.step()
        wait_until(lambda: control.state == "paused" and len(taken) == 3, "the pause after it")
        control.stop()

    thread = threading.Thread(target=press)
    thread.start()
    for epoch in range(5):
        for number in dl.controlled(range(2)):
            taken.append((epoch, number))
            if taken == [(0, 0), (0, 1)]:  # the last element of an epoch
                control.pause()
    thread.join(LIMIT_SECONDS)
    assert taken == [(0, 0), (0, 1), (1, 0)]


def test_a_recording_knows_of_a_stop_and_the_next_one_begins_without() -> None:
    with dl.record(None) as first:
        for _ in dl.controlled(range(3)):
            own().stop()
        assert first.stopped
    with dl.record(None) as second:
        assert list(dl.controlled(range(3))) == [0, 1, 2]
    assert first.stopped
    assert not second.stopped


def test_an_outer_loop_is_stopped_with_the_inner_one() -> None:
    taken = []
    for epoch in dl.controlled(range(3), name="epochs"):
        for number in dl.controlled(range(3), name="batches"):
            taken.append((epoch, number))
            own().stop()
        assert own().name == "epochs"
    assert taken == [(0, 0)]


def test_a_loop_that_is_left_early_is_over() -> None:
    def leave() -> None:
        for number in dl.controlled(range(10), name="early"):
            if number == 2:
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        leave()
    for _ in dl.controlled(range(10)):
        break
    wait_until(lambda: own().state == "between loops", "the end of the loop")


def test_each_change_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = Notes()
    monkeypatch.setattr(sink, "in_force", notes)
    worker = Worker(3, name="fit")
    worker.control.pause()
    worker.free = True
    worker.wanted.release()
    worker.wait_for("paused")
    worker.control.resume()
    worker.thread.join(LIMIT_SECONDS)
    found = [(e.name, e.state, e.position) for e in notes.events if isinstance(e, Loop)]
    assert found == [
        ("fit", "running", 0),
        ("fit", "paused", 1),
        ("fit", "running", 1),
        ("fit", "done", 3),
    ]


def test_what_is_no_iterable_or_name_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="accepts an iterable, got a int: 3"):
        dl.controlled(3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="name must be a string, got 5"):
        dl.controlled([], name=5)  # type: ignore[arg-type]
