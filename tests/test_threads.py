"""Threads that are waited for, also again after an interrupt."""

from __future__ import annotations

import os
import threading

import pytest

from distlab.threads import Thread
from tests.patience import LIMIT_SECONDS, interrupt


def test_who_is_interrupted_can_wait_again() -> None:
    go = threading.Event()
    thread = Thread(go.wait, LIMIT_SECONDS, name="interrupted")
    assert not thread.is_alive()
    thread.start()
    interrupt(thread.join)
    assert thread.is_alive()
    thread.join(0.01)
    assert thread.is_alive()
    go.set()
    thread.join()
    assert not thread.is_alive()


def test_all_who_wait_are_told() -> None:
    go = threading.Event()
    waited_for = Thread(go.wait, LIMIT_SECONDS, name="waited for")
    waited_for.start()
    waiting = [Thread(waited_for.join, name="waiting") for _ in range(3)]
    for thread in waiting:
        thread.start()
    go.set()
    for thread in waiting:
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


def test_a_thread_does_not_wait_for_itself() -> None:
    thread = Thread(lambda: threading.current_thread().join(), name="itself")
    thread.start()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive()


def test_a_forked_child_waits_for_no_thread_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    thread = Thread(go.wait, LIMIT_SECONDS, name="of the parent")
    thread.start()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 1)
        thread.join()
        assert not thread.is_alive()
    assert thread.is_alive()
    go.set()
    thread.join()
