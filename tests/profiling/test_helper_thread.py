"""A thread for work beside the training."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from distlab.profiling.helper_thread import HelperThread
from distlab.threads import Thread
from tests.patience import LIMIT_SECONDS


def amid(work: Callable[[], None]) -> None:
    """Calls a function, and again at each call and return within it, as a signal's handler may."""

    def again(_frame: FrameType, _event: str, _of: Any) -> None:
        sys.setprofile(None)
        work()
        sys.setprofile(again)

    sys.setprofile(again)
    work()
    sys.setprofile(None)


@pytest.mark.parametrize("rests", [True, False])
def test_what_interrupts_a_wake_may_wake(rests: bool) -> None:
    woken = threading.Event()

    def work() -> None:
        if rests:
            helper.rest(LIMIT_SECONDS)
        woken.set()

    helper = HelperThread("helper", work)
    waking = Thread(amid, helper.wake, name="waking")
    waking.start()
    waking.join(LIMIT_SECONDS)
    assert not waking.is_alive()
    assert woken.wait(LIMIT_SECONDS)
    helper.stop()
