"""All processes stop after one step, whichever of them is told, and wherever they are."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ContextError
from distlab.processes.preemption import StopAgreement, watch_for_sigterm
from tests.input.threads_as_workers import groups, on_all
from tests.processes.cluster import run_workers

pytestmark = pytest.mark.usefixtures("own_sigterm")
MOST_STEPS = 100_000


def stops(told: list[bool], pauses: list[float], begun: int = 0) -> list[Any]:
    """Runs a loop in a thread for each worker; returns after which step each one stopped."""
    members = groups(len(told))
    ready = threading.Barrier(len(told))

    def loop(number: int) -> int:
        agreement = StopAgreement(members[number], lambda: told[number], begun=begun)
        ready.wait(60)
        steps, pause = begun, threading.Event()
        while not agreement.begin():
            steps += 1
            assert steps < MOST_STEPS
            pause.wait(pauses[number])
        return steps

    return on_all([lambda n=n: loop(n) for n in range(len(told))])  # type: ignore[misc]


@given(data=st.data(), workers=st.integers(2, 4), begun=st.integers(0, 5))
@settings(max_examples=6, deadline=None)
def test_all_stop_after_the_same_step(data: st.DataObject, workers: int, begun: int) -> None:
    told = data.draw(st.lists(st.booleans(), min_size=workers, max_size=workers).filter(any))
    pauses = data.draw(
        st.lists(st.sampled_from([0.001, 0.004, 0.01]), min_size=workers, max_size=workers)
    )
    found = stops(told, pauses, begun)
    assert len(set(found)) == 1
    assert found[0] >= begun


def test_one_process_stops_before_its_next_step() -> None:
    told = False
    agreement = StopAgreement(None, lambda: told)
    assert [agreement.begin() for _ in range(3)] == [False, False, False]
    told = True
    assert agreement.begin()
    assert agreement.begin()


def test_after_a_stop_it_goes_on_until_the_grace_is_over() -> None:
    agreement = StopAgreement(None, lambda: True)
    assert agreement.begin()
    agreement.go_on(1.0)
    until = time.monotonic() + 60
    steps = 0
    while not agreement.begin() and time.monotonic() < until:
        steps += 1
        threading.Event().wait(0.01)
    assert steps > 0
    assert agreement.noticed_at is not None
    assert 1.0 <= time.monotonic() - agreement.noticed_at < 60


def test_what_the_users_function_raises_in_its_thread_is_raised_in_the_loop() -> None:
    def broken() -> bool:
        raise OSError("no metadata server")

    agreement = StopAgreement(None, broken, is_slow=True)

    def loop() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            agreement.begin()
            threading.Event().wait(0.01)

    with pytest.raises(OSError, match="no metadata server"):
        loop()


def test_sigterm_is_heard_in_the_main_thread_alone_and_given_back() -> None:
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


def test_all_watchers_say_which_worker_it_is_and_wait_until_it_has_ended() -> None:
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
    for outcome in run_workers(program, workers=3):
        assert outcome.shown["message"].startswith("worker 1 (worker:1 on ")
        assert outcome.shown["waited"]
        assert outcome.code == 0
