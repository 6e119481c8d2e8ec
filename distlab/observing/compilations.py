"""All compilations of the process, as `jax.monitoring` reports them in the thread that compiles."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import Any, Final, NamedTuple

import jax

_COMPILE: Final = "/jax/core/compile/"
_TRACED: Final = f"{_COMPILE}jaxpr_trace_duration"
_LOWERED: Final = f"{_COMPILE}jaxpr_to_mlir_module_duration"
_COMPILED: Final = f"{_COMPILE}backend_compile_duration"
_CACHE_HIT: Final = "/jax/compilation_cache/cache_hits"
_LISTENS: Final = "/distlab/listens"
_KEPT: Final = 10_000
_RECENT: Final = 100


class Compilation(NamedTuple):
    """One compilation of a program by XLA.

    Attributes:
      name: Name of the function, or of the JAX operation that was called outside of one.
      time_ns: Monotonic time at its end, in nanoseconds.
      trace_s: Seconds of tracing Python; 0 where only a sharding changed, and JAX had the trace.
      lower_s: Seconds of making XLA's input.
      compile_s: Seconds in XLA, or of reading the program from a cache.
      from_cache: Whether the program came from JAX's persistent compilation cache.
      why: What changed since the last compilation of this function, where that is known: of
        functions that `distlab.observe` returned, and in `record(..., observe="programs")`.
      thread: Name of the thread that compiled it.
    """

    name: str
    time_ns: int
    trace_s: float
    lower_s: float
    compile_s: float
    from_cache: bool
    why: str
    thread: str


class Heard(threading.local):
    """The compilations of one thread.

    Attributes:
      lowered: Number of lowerings so far.
      last: The last one.
      recent: The last of them, the newest at the end.
      noted: The last one whose program was read.
    """

    def __init__(self) -> None:
        self.lowered = 0
        self.last: Compilation | None = None
        self.noted: Compilation | None = None
        self.recent: deque[Compilation] = deque(maxlen=_RECENT)
        self.trace_s = self.lower_s = 0.0
        self.from_cache = False


heard: Final = Heard()
"""The compilations of the calling thread."""

_kept: Final[deque[Compilation]] = deque(maxlen=_KEPT)
_lock = threading.RLock()
_listening = False


def compilations() -> list[Compilation]:
    """Returns the compilations of this process, oldest first.

    XLA compiles functions of `jax.jit`, `jax.pmap`, `nnx.jit` and other ways to jit, and each
    operation of `jax.numpy` that runs outside of one. Compilations are noted once distlab's names
    are imported; the last 10,000 are kept.

    Returns:
      The compilations, with their times in seconds, and why, where that is known.

    Example:
      >>> import distlab as dl, jax, jax.numpy as jnp
      >>> double = dl.observe(jax.jit(lambda x: 2 * x), name="double")
      >>> for length in (2, 3):
      ...     doubled = double(jnp.ones(length))
      >>> [(one.name, one.why) for one in dl.compilations() if one.name == "<lambda>"][-1]
      ('<lambda>', 'x: float32[2] -> float32[3]')
    """
    listen()
    with _lock:
        return list(_kept)


def longest_since(last: Compilation | None) -> Compilation | None:
    """Returns the longest compilation of the calling thread since one: that of a call.

    Others may be of operations around it, as on the results of a `pmap`.
    """
    found = list(itertools.takewhile(lambda one: one is not last, reversed(heard.recent)))
    return max(found, key=lambda one: one.trace_s + one.lower_s + one.compile_s, default=None)


def explain(compilation: Compilation, why: str) -> None:
    """Adds to a compilation why it was made."""
    with _lock:
        for place in reversed(range(len(_kept))):
            if _kept[place] is compilation:
                _kept[place] = compilation._replace(why=why)
                return


def plain_name(name: str) -> str:
    """Returns a program's name without JAX's mark of it."""
    return name[4:-1] if name.startswith("jit(") else name


def listen() -> None:
    """Sees to it that compilations are heard: others may remove all listeners of JAX."""
    global _listening
    with _lock:
        _listening = False
        jax.monitoring.record_event(_LISTENS)
        if not _listening:
            jax.monitoring.register_event_listener(_hear_event)
            jax.monitoring.register_event_duration_secs_listener(_hear)


def _hear_event(event: str, **_: Any) -> None:
    global _listening
    if event == _LISTENS:
        _listening = True
    elif event == _CACHE_HIT:
        heard.from_cache = True


def _hear(event: str, duration_secs: float, **about: Any) -> None:
    """Notes a part of a compilation. What it raised would end the user's compilation."""
    try:
        if event == _TRACED:
            heard.trace_s = duration_secs  # those of inner functions come first
        elif event == _LOWERED:
            heard.lowered += 1
            heard.lower_s = duration_secs
        elif event == _COMPILED:
            _add(str(about.get("fun_name", "")), duration_secs)
    except Exception:  # noqa: BLE001 - of any new version of JAX
        return


def _add(name: str, seconds: float) -> None:
    one = Compilation(
        name=plain_name(name),
        time_ns=time.monotonic_ns(),
        trace_s=heard.trace_s,
        lower_s=heard.lower_s,
        compile_s=seconds,
        from_cache=heard.from_cache,
        why="",
        thread=threading.current_thread().name,
    )
    heard.trace_s = heard.lower_s = 0.0
    heard.from_cache = False
    with _lock:
        _kept.append(one)
    heard.last = one
    heard.recent.append(one)


listen()
