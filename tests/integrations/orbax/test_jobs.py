"""Writing in a thread."""

from __future__ import annotations

import threading

import pytest

from distlab.integrations.orbax.jobs import Job
from tests.patience import LIMIT_SECONDS, interrupt


def test_an_interrupted_wait_does_not_take_the_write_for_done() -> None:
    go = threading.Event()

    def write() -> None:
        go.wait(LIMIT_SECONDS)
        raise OSError("no space left")

    job = Job(write)
    interrupt(job.wait)
    go.set()
    with pytest.raises(OSError, match="no space left"):
        job.wait()
