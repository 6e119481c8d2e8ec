"""One short profile of the devices, in memory.

The XLA profiler runs once in a process. While a profile is being taken here,
somebody who starts one of their own waits for a moment instead of failing;
while theirs runs, none is taken here.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any, Final

import jax

from distlab.devices import jax_internals
from distlab.errors import CaptureError

MOST_BYTES: Final = 64 << 20
"""Profiles beyond this are not read: a minute of Python would go into it."""

ANCHOR: Final = "distlab anchor"


class Profile:
    """A profile that is being taken, from here until `stop`.

    Attributes:
      start_ns: monotonic time at which it began.
      anchor_ns: monotonic time of the annotation named `ANCHOR` in it, which ties
        the profile's clock to ours.

    Raises:
      CaptureError: another profile is being taken in this process.
    """

    def __init__(self) -> None:
        self._held = ExitStack()
        # The lock is taken and given back by the thread that calls, whichever that is.
        if not self._held.enter_context(jax_internals.profiler_reserved()):
            self._held.close()
            raise CaptureError(
                "Only one profile can be taken at a time, and jax.profiler or another capture is "
                "taking one. Stop it first, or capture later."
            )
        try:
            self._session: Any = jax_internals.start_profile(_options())
        except BaseException:
            self._held.close()
            raise
        self.start_ns = time.monotonic_ns()
        with jax.profiler.TraceAnnotation(ANCHOR):
            self.anchor_ns = time.monotonic_ns()
        self._stopping = threading.Lock()

    def stop(self) -> bytes:
        """Ends the profile. Stopping twice gives nothing the second time.

        Returns:
          A serialised `XSpace`, as `jax.profiler.ProfileData` reads it.
        """
        with self._stopping:
            session, self._session = self._session, None
            if session is None:
                return b""
            try:
                return bytes(session.stop())
            finally:
                self._held.close()


def _options() -> jax.profiler.ProfileOptions:
    """Operations of the devices only: tracing Python costs three times as much."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    options.enable_hlo_proto = False
    return options
