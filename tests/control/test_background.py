"""`distlab.background`: functions in threads of their own."""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.control.background import Background
from distlab.control.loops import loops
from distlab.errors import ArgumentTypeError, ContextError
from tests.patience import LIMIT_SECONDS, wait_until


def count(name: str = "counting") -> int:
    """Counts until someone stops it."""
    seen = 0
    for seen in dl.controlled(itertools.count(), name=name):  # noqa: B007 - the last one is returned
        time.sleep(0.001)
    return seen


@pytest.fixture
def counting() -> Iterator[Background[int]]:
    handle = dl.background(count)
    wait_until(lambda: any(loop.position > 3 for loop in loops()))
    yield handle
    handle.stop()
    handle.result(LIMIT_SECONDS)


def test_it_returns_what_the_function_returned() -> None:
    handle = dl.background(divmod, 17, 5)
    assert handle.result(LIMIT_SECONDS) == (3, 2)
    assert handle.done()
    assert not handle.running
    assert repr(handle).startswith("<background divmod: finished after ")


def test_a_running_function_says_how_its_loops_go(counting: Background[int]) -> None:
    assert counting.running
    assert not counting.done()
    assert "running for" in repr(counting)
    assert "counting running, " in repr(counting)
    assert "counting" in counting._repr_html_()


def test_stopping_ends_its_loops_and_keeps_the_result(counting: Background[int]) -> None:
    counting.stop()
    assert counting.result(LIMIT_SECONDS) >= 3
    assert repr(counting).startswith("<background count: stopped after ")
    assert "<td" in counting._repr_html_()


def test_stopping_ends_the_loops_of_later_epochs_too() -> None:
    def train() -> int:
        return sum(count(f"epoch {epoch}") > 0 for epoch in range(3))

    handle = dl.background(train)
    wait_until(lambda: any(loop.name == "epoch 0" for loop in loops()))
    handle.stop()
    handle.stop()
    handle.result(LIMIT_SECONDS)
    assert "stopped after" in repr(handle)


def test_a_paused_function_can_be_stopped(counting: Background[int]) -> None:
    (loop,) = loops()
    loop.pause()
    wait_until(lambda: loop.state == "paused")
    assert "counting paused, " in repr(counting)
    counting.stop()
    counting.result(LIMIT_SECONDS)


def test_stopping_leaves_older_loops_alone(counting: Background[int]) -> None:
    second = dl.background(count, "second")
    wait_until(lambda: any(loop.name == "second" for loop in loops()))
    second.stop()
    second.result(LIMIT_SECONDS)
    assert counting.running


def test_an_error_is_shown_said_and_raised(caplog: pytest.LogCaptureFixture) -> None:
    def train() -> None:
        raise ValueError("<b>no data</b>")

    with caplog.at_level(logging.ERROR, "distlab"):
        handle = dl.background(train)
        wait_until(handle.done)
    assert "ValueError: <b>no data</b>" in repr(handle)
    assert "&lt;b&gt;no data" in handle._repr_html_()
    assert "train failed in the background: ValueError" in caplog.text
    with pytest.raises(ValueError, match="no data"):
        handle.result()


def test_waiting_has_a_limit(counting: Background[int]) -> None:
    with pytest.raises(TimeoutError, match=r"count has not ended within 0\.01 s"):
        counting.result(0.01)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:.*fork:RuntimeWarning")
def test_a_forked_child_does_not_wait_for_a_thread_it_lacks(counting: Background[int]) -> None:
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            counting.result()  # raises, or waits until the test's limit
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_callers_strategy_and_context_are_in_force() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    colour = contextvars.ContextVar("colour", default="none")

    def make(*, name: str) -> tuple[object, list[float], str]:
        weight = dl.Variable(jnp.ones(2), name=name)
        return dl.get_strategy(), [float(v.value().sum()) for v in weight.values], colour.get()

    token = colour.set("green")
    with strategy.scope():
        handle = dl.background(make, name="w")
    colour.reset(token)
    assert handle.result(LIMIT_SECONDS) == (strategy, [2.0, 2.0], "green")
    assert not dl.background(dl.has_strategy).result(LIMIT_SECONDS)


def test_it_must_be_a_function_in_cross_replica_context() -> None:
    with pytest.raises(ArgumentTypeError, match=r"not background\(train\(\.\.\.\)\)"):
        dl.background(3)  # type: ignore[arg-type]
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with pytest.raises(ContextError, match="on each replica"):
        strategy.run(lambda: dl.background(count))


def test_a_program_ends_while_a_stoppable_function_runs() -> None:
    code = (
        "import distlab as dl, itertools\n"
        "def train():\n"
        "    for _ in dl.controlled(itertools.count()): pass\n"
        "    print('ended between two steps')\n"
        "dl.background(train)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout == "ended between two steps\n"
