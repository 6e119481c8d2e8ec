"""An interrupt while a recording begins or ends leaves no run that is open for good."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import distlab as dl
from distlab.recording import RingRecorder
from distlab.recording.recording import Recording
from distlab.threads import Thread


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1_000):  # Python handles it between two of its operations
        pass


def interrupting(old: Callable[..., Any], main: int) -> Callable[..., Any]:
    """Returns a function that is interrupted once, in the main thread, as it begins."""
    calls: list[None] = []

    def new(*args: Any, **options: Any) -> Any:
        if threading.get_ident() == main and not calls:
            calls.append(None)
            interrupt()
        return old(*args, **options)

    return new


def interrupted_at(call: int, function: Callable[[], None]) -> bool:
    """Calls a function, interrupted at the start of a call of distlab's code; returns whether.

    Not in a generator expression: where one is left early, Python ends it, and drops what an end
    raises.
    """
    calls = 0

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls
        own = frame.f_globals.get("__name__", "").startswith("distlab.")
        calls += event == "call" and own and frame.f_code.co_name != "<genexpr>"
        if calls == call:
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(before)
    return calls >= call


def test_interrupts_anywhere_in_a_close_lose_nothing(
    tmp_path: Path, recorder: RingRecorder
) -> None:
    call = 1
    while True:
        folder = tmp_path / str(call)
        recording = dl.record(folder, probe=False)
        recording.log(3, loss=0.5)
        interrupted = interrupted_at(call, recording.close)
        interrupted_at(call // 2 + 1, recording.close)
        recording.close()
        with dl.Run.open(folder) as run:
            summary = run.summary()
        assert (summary["status"], summary["metrics"]) == ("finished", {"loss": 0.5}), call
        dl.record(folder, overwrite=True, probe=False).close()
        if not interrupted:
            break
        call += 1 + call // 3
    assert call > 100


def test_interrupt_at_end_of_with_block_leaves_no_recording_open(
    tmp_path: Path, recorder: RingRecorder
) -> None:
    before = set(threading.enumerate())
    call = 2  # the first is that of `__exit__`
    while True:
        folder = tmp_path / str(call)
        recording = dl.record(folder)
        recording.log(3, loss=0.5)
        interrupted = interrupted_at(call, partial(recording.__exit__, None, None, None))
        with dl.Run.open(folder) as run:
            assert not run.live, call
            assert run.summary()["metrics"] == {"loss": 0.5}, call
        if not interrupted:
            break
        call += 1 + call // 3
    assert call > 100
    assert not running(before)


@pytest.mark.parametrize("named", ["distlab run file", "distlab prober"])
def test_interrupt_while_a_thread_starts_leaves_none_running(
    named: str, tmp_path: Path, recorder: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, before = Thread.start, set(threading.enumerate())

    def interrupted(thread: Thread) -> None:
        start(thread)
        if thread.name == named:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dl.record(tmp_path / "run")
    assert not running(before)
    assert dl.Run.open(tmp_path / "run").summary()["status"] == "interrupted"
    dl.record(tmp_path / "run", overwrite=True, probe=False).close()


def running(before: set[threading.Thread]) -> list[str]:
    """Returns the names of threads of a recording that go on running, and did not before."""
    names = ("distlab run file", "distlab prober")
    end = time.monotonic() + 10
    while True:
        alive = [t.name for t in threading.enumerate() if t.name in names and t not in before]
        if not alive or time.monotonic() > end:
            return alive
        time.sleep(0.01)


def test_interrupted_begin_of_a_recording_leaves_folder_free(
    tmp_path: Path, recorder: RingRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((RingRecorder, "open"), (Recording, "__init__")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupting(getattr(owner, name), threading.get_ident()))
            with pytest.raises(KeyboardInterrupt):
                dl.record(tmp_path / name, probe=False)
        dl.record(tmp_path / name, overwrite=True, probe=False).close()
