"""Notices of preemption: the signal, and the step before which a process stops."""

from __future__ import annotations

import os
import signal
import time

import pytest

import distlab as dl
from distlab.errors import ContextError
from distlab.processes.preemption import StopPoint, watch_for_sigterm
from tests.input.threads_as_workers import on_all
from tests.patience import LIMIT_SECONDS
from tests.processes.cluster import run_workers

pytestmark = pytest.mark.usefixtures("own_sigterm")


def test_a_signal_stops_before_the_next_step() -> None:
    point = StopPoint(None, None)
    assert [point.begin() for _ in range(3)] == [False, False, False]
    os.kill(os.getpid(), signal.SIGTERM)
    assert point.begin()
    assert point.begin()
    assert point.go_on(2) == 2
    assert [point.begin() for _ in range(3)] == [False, False, True]


@pytest.mark.slow
def test_an_error_of_the_users_function_is_raised_in_the_loop() -> None:
    def broken() -> bool:
        raise OSError("no metadata server")

    def loop() -> None:
        point, until = StopPoint(None, broken), time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < until:
            point.begin()

    with pytest.raises(OSError, match="no metadata server"):
        loop()


def test_sigterm_is_watched_in_the_main_thread_alone() -> None:
    (error,) = on_all([watch_for_sigterm])
    assert isinstance(error, ContextError)
    before = signal.getsignal(signal.SIGTERM)
    undo = watch_for_sigterm()
    assert signal.getsignal(signal.SIGTERM) is not before
    undo()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_watcher_sees_a_signal_that_comes_after_it_was_made() -> None:
    first = dl.experimental.PreemptionWatcher()
    messages = [first.preemption_message]
    os.kill(os.getpid(), signal.SIGTERM)
    messages.append(first.preemption_message)
    assert messages == [None, "This process is to be taken away."]
    assert dl.experimental.PreemptionWatcher().preemption_message is None
    first.block_until_worker_exit()


def test_all_watchers_name_the_worker_and_wait_for_its_end() -> None:
    program = """
    import os, signal, threading
    import distlab as dl
    from distlab.processes import group

    strategy = dl.MultiWorkerMirroredStrategy()
    watcher = dl.experimental.PreemptionWatcher()
    group.current().barrier("watching")
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    pause = threading.Event()
    while watcher.preemption_message is None:
        pause.wait(0.05)
    show("message", watcher.preemption_message)
    watcher.block_until_worker_exit()
    show("waited", True)
    """
    for outcome in run_workers(program, workers=2):
        assert outcome.shown["message"].startswith("worker 1 (worker:1 on ")
        assert outcome.shown["waited"]
        assert outcome.code == 0
