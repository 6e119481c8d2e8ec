"""binder-check measures what processes cost, and reports what is too much."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.binder.cost import (
    Meter,
    OverBudgetError,
    check_budget,
    cpu_seconds,
    memory,
    processes,
)
from tests.binder.served import WaitedTooLongError, wait_until

HOLDS = "held = bytearray(50_000_000); print(len(held), flush=True); input()"


def test_a_meter_keeps_the_memory_of_a_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "50000000\n"
    with Meter(process.pid) as meter:
        wait_until("a look", lambda: process.pid in meter.peak, 30)
    assert 50 < meter.peak[process.pid] < 80
    assert 0 <= cpu_seconds(process.pid) < 10
    assert HOLDS in processes(os.getpid())[process.pid]
    process.communicate("\n", timeout=60)
    assert (memory(process.pid), processes(process.pid)) == (0.0, {})


def test_too_much_memory_or_time_is_an_error() -> None:
    check_budget("memory", 900.0, 900.0, "MB")
    with pytest.raises(OverBudgetError, match="memory may be at most 900 MB, and was 951 MB"):
        check_budget("memory", 951.2, 900.0, "MB")
    with pytest.raises(WaitedTooLongError, match=r"Waited 0 s for rain\."):
        wait_until("rain", lambda: False, 0)
