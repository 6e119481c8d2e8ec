"""The frames of another thread are read in one call, and garbage collection is as before."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distlab.devices.thread_frames import frames_of

LIMIT_SECONDS = 60.0
DEPTH = 200
"""Calls of `outer` in the waiting thread."""


@contextmanager
def waiting_thread() -> Iterator[int]:
    """Runs a thread that is in `inner`, which `outer` called; gives its identifier."""
    entered, leave = threading.Event(), threading.Event()

    def inner() -> None:
        entered.set()
        leave.wait(LIMIT_SECONDS)

    def outer(depth: int = DEPTH) -> None:
        if depth > 1:
            outer(depth - 1)
        else:
            inner()

    thread = threading.Thread(target=outer)
    thread.start()
    assert entered.wait(LIMIT_SECONDS)
    try:
        yield thread.ident or 0
    finally:
        leave.set()
        thread.join(LIMIT_SECONDS)


def test_frames_of_another_thread_begin_with_the_innermost() -> None:
    with waiting_thread() as thread:
        names = [frame.f_code.co_name for frame in frames_of(thread)]
    assert [name for name in names if name in {"inner", "outer"}] == [
        "inner",
        *["outer"] * DEPTH,
    ]
    assert names[-1] == "_bootstrap"


def test_a_thread_that_has_ended_has_no_frames() -> None:
    with waiting_thread() as thread:
        pass
    assert frames_of(thread) == []
    assert frames_of(0) == []


def test_no_garbage_is_collected_while_frames_are_read() -> None:
    collections: list[str] = []

    def collected(phase: str, info: dict[str, int]) -> None:
        del info
        if reading.is_set() and phase == "start":
            collections.append(phase)

    reading = threading.Event()
    before = gc.get_threshold()
    with waiting_thread() as thread:
        gc.callbacks.append(collected)
        try:
            gc.set_threshold(1)
            reading.set()
            frames = frames_of(thread)
            during = len(collections)
            reading.clear()
        finally:
            gc.set_threshold(*before)
            gc.callbacks.remove(collected)
    assert len(frames) > DEPTH
    assert during < DEPTH / 4, "garbage was collected for each frame"
