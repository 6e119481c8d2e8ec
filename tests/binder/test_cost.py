"""binder-check measures what processes cost, and reports what is too much."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.binder.cost import (
    Meter,
    OverBudgetError,
    check_budget,
    command,
    cpu_seconds,
    memory,
    processes,
)
from tests.binder.served import WaitedTooLongError, wait_until

HOLDS = "held = bytearray(50_000_000); print(len(held), flush=True); input()"


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """A process that holds 50 MB and waits."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "50000000\n"
    yield process
    process.communicate("\n", timeout=60)


def test_memory_and_cpu_time_of_a_process(holder: subprocess.Popen[str]) -> None:
    assert 50 < memory(holder.pid) < 80
    assert 0 <= cpu_seconds(holder.pid) < 10


def test_a_process_is_found_with_what_it_started(holder: subprocess.Popen[str]) -> None:
    found = processes(os.getpid())
    assert os.getpid() in found
    assert HOLDS in found[holder.pid]
    assert list(processes(holder.pid)) == [holder.pid]


def test_a_meter_keeps_the_most_that_was_used(holder: subprocess.Popen[str]) -> None:
    with Meter(holder.pid) as meter:
        wait_until("a look", lambda: holder.pid in meter.peak, 30)
    assert 50 < meter.peak[holder.pid] < 80
    assert HOLDS in meter.commands[holder.pid]


def test_a_process_that_has_ended_has_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    assert (memory(ended.pid), command(ended.pid), processes(ended.pid)) == (0.0, "", {})


def test_too_much_is_said_with_both_figures() -> None:
    check_budget("memory", 900.0, 900.0, "MB")
    with pytest.raises(OverBudgetError, match="memory may be at most 900 MB, and was 951 MB"):
        check_budget("memory", 951.2, 900.0, "MB")


def test_what_does_not_happen_is_named() -> None:
    with pytest.raises(WaitedTooLongError, match=r"Waited 0 s for rain\."):
        wait_until("rain", lambda: False, 0)
