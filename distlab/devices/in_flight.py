"""Limits the number of dispatched steps that the devices have not finished.

CPU devices deadlock permanently when many steps with collectives are queued:
each step needs a thread on every device, and steps that wait for one another
can occupy all threads. A limit of 16 costs no throughput.

Steps end before the interpreter does: a thread that is inside of JAX by then would
abort the process. And a forked child has no steps: the devices' threads do not exist there.
"""

from __future__ import annotations

import atexit
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeAlias

import jax

from distlab.devices import jax_internals
from distlab.devices.thread_frames import frames_of
from distlab.errors import ContextError
from distlab.threads import DEVICES
from distlab.threads import waiting as thread_waits
from distlab.user_code import warn

LIMIT: Final = 16
"""The maximum number of steps in flight in this process."""

SHORT_POOL_LIMIT: Final = 2
"""The same where XLA's thread pool is smaller than distlab would have made it."""

_WHICH: Final = (
    "Steps are not awaited when run returns: jax.block_until_ready(result) after each call finds "
    "which one it was."
)
_EXIT_SECONDS: Final = 5.0
_COMPILE_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.005
_WAITING_IN: Final = {threading.__file__, queue.__file__}
_ENDING_IN: Final = {"run", "_bootstrap_inner", "_bootstrap"}
"""The functions of `threading` that drop what an ended thread held, which may call XLA."""


_Lock: TypeAlias = AbstractContextManager[object, None]

dispatching: Any = threading.RLock()
"""Held while a step is dispatched: two threads that dispatch steps with collectives
to the same devices in different orders would deadlock. Where no step may be dispatched
any more, another object takes its place, so that steps pay nothing for it."""

is_held: Callable[[], bool] = dispatching._is_owned
"""Returns whether the calling thread is dispatching a step."""


def is_dispatching() -> bool:
    """Returns whether another thread dispatches a step, which may wait for other processes."""
    if isinstance(dispatching, _Forked | _Ending):
        return False
    if dispatching.acquire(blocking=False):
        dispatching.release()
        return False
    return True


limit = LIMIT

_waiting: deque[tuple[jax.Array, bool]] = deque()
"""An output of each step, and whether the step assigns variables."""
failed: deque[tuple[Exception, bool]] = deque(maxlen=1)
"""The error of a step that was waited for, and whether the step assigns variables.

The next step raises it. Of a step of which nothing is left but results the next one warns alone:
whoever reads the results gets the error, and may have handled it."""

threads: set[int] = set()
"""The threads that run steps, by `threading.get_ident()`: the end of the process waits for them."""


class _Awaited(threading.local):
    ns = 0
    before_ns = 0  # Of these before the step that is being called


awaited = _Awaited()
"""The nanoseconds that a thread waited for results since its last step."""


@contextmanager
def awaiting() -> Iterator[None]:
    """Counts the time of a block as time in which the calling thread waits for results."""
    began = time.monotonic_ns()
    try:
        with thread_waits(DEVICES):
            yield
    finally:
        awaited.ns += time.monotonic_ns() - began


def admit(result: jax.Array, *, assigns: bool = False) -> None:
    """Counts a step as in flight; waits for the older half, whose errors are kept, at the limit."""
    _waiting.append((result, assigns))
    if len(_waiting) <= limit:
        return
    # Waiting for the newest first wakes this thread once instead of eight times.
    for older, assigned in reversed([_waiting.popleft() for _ in range(limit // 2)]):
        # A donated result is deleted; the step that reuses its memory is later in the queue.
        if not older.is_deleted():
            try:
                older.block_until_ready()
            except Exception as error:  # noqa: BLE001 - raised by `require_sound`
                if assigned or not failed:
                    failed.append((error, assigned))


def note_awaited(result: jax.Array) -> None:
    """Counts the step of a result as finished, and keeps the result no longer."""
    with dispatching:
        for number, (one, _) in enumerate(_waiting):
            if one is result:
                del _waiting[number]
                return


def require_sound() -> None:
    """Raises the error of an earlier step, once, before the next one begins."""
    try:
        error, assigned = failed.pop()
    except IndexError:  # no error, or another thread was quicker
        return
    if not assigned:
        warn(
            f"An earlier step failed: {type(error).__name__}: {error}\nIt assigned no variable, so "
            "this program goes on; whoever reads the results of that step gets this error. "
            + _WHICH,
            RuntimeWarning,
        )
        return
    error.add_note(f"An earlier step failed, and this call has done nothing. {_WHICH}")
    raise error


def begin_anew() -> None:
    """Forgets the steps in flight: their devices were given up."""
    _waiting.clear()
    failed.clear()


def waiting() -> list[jax.Array]:
    """Returns the results of the steps in flight, the oldest first."""
    return [result for result, _ in list(_waiting)]


def note_thread() -> None:
    """Notes that the calling thread runs steps, or traces: the interpreter's end waits for it."""
    threads.add(threading.get_ident())


def require_not_forked() -> None:
    """Checks that the devices' threads exist, without which nothing is computed."""
    if isinstance(dispatching, _Forked):
        dispatching.__enter__()


def require_open() -> None:
    """Notes that the calling thread computes, in a way that dispatches nothing by itself."""
    require_not_ending()
    require_not_forked()


def require_not_ending() -> None:
    """Notes that the calling thread has arrays, and is about to be inside of JAX with them."""
    note_thread()
    if isinstance(dispatching, _Ending):
        with dispatching:
            pass


class _Forked(AbstractContextManager[object, None]):
    """In the place of `dispatching` in a forked child."""

    def __enter__(self) -> None:
        raise ContextError(
            f"Process {os.getpid()} was forked after JAX had started its devices, whose threads do "
            "not exist in the child: a step would never end. Start new processes: "
            'multiprocessing.get_context("spawn"), or mp_context= of ProcessPoolExecutor.'
        )

    def __exit__(self, *raised: object) -> None:
        """Is never called."""


class _Ending(AbstractContextManager[object, None]):
    """In the place of `dispatching` while the interpreter ends."""

    def __init__(self, before: _Lock) -> None:
        self._before = before

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise SystemExit  # which ends a thread without a message
        self._before.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._before.__exit__(None, None, None)


def end_threads() -> None:
    """Ends all threads that run steps, each at its next step. Returns at once."""
    global dispatching
    if not isinstance(dispatching, _Forked | _Ending):
        dispatching = _Ending(dispatching)


def finish() -> None:
    """Ends all threads that run steps; waits, within a limit, until the devices are done."""
    end_threads()
    began = time.monotonic()
    for thread in threading.enumerate():
        if thread.ident not in threads or thread is threading.current_thread():
            continue
        in_jax = began
        while thread.is_alive():  # one that Python has not started can't be joined
            limit, now = _limit(thread), time.monotonic()
            if limit == _COMPILE_SECONDS:
                in_jax = now
            # Between tracing and compiling it is outside of JAX for a moment.
            if now >= min(in_jax + limit, began + _COMPILE_SECONDS):
                break
            time.sleep(_POLL_SECONDS)
    until = time.monotonic() + _EXIT_SECONDS
    while any(not _is_done(result) for result in waiting()) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)
    for error, _ in failed:  # no later step has raised it
        print(f"A step failed: {type(error).__name__}: {error}", file=sys.stderr)


def _limit(thread: threading.Thread) -> float:
    """Returns for how many seconds after its last use of JAX the interpreter's end awaits a thread.

    It is 0 for one that waits in Python, outside of a step, as for its next task.
    """
    frames = frames_of(thread.ident or 0)
    if not frames:
        return 0 if isinstance(thread, threading._DummyThread) else _EXIT_SECONDS
    modules = [frame.f_globals.get("__name__", "") for frame in frames]
    if any(module.startswith("jax.") for module in modules):
        return _COMPILE_SECONDS
    in_step = any(module.startswith("distlab.step.") for module in modules)
    innermost = frames[0].f_code
    waits = innermost.co_filename in _WAITING_IN and innermost.co_name not in _ENDING_IN
    rests = waits and not in_step
    return 0 if rests else _EXIT_SECONDS


def _is_done(result: jax.Array) -> bool:
    try:
        return result.is_deleted() or jax_internals.is_ready(result)
    except RuntimeError:  # it was deleted meanwhile
        return True


def _after_fork() -> None:
    """Gives a forked child a lock that nobody holds, or none if its devices are dead."""
    global dispatching, is_held
    _waiting.clear()
    failed.clear()
    threads.clear()
    dispatching = threading.RLock()
    is_held = dispatching._is_owned
    if jax_internals.backend_started():
        dispatching = _Forked()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(finish)
