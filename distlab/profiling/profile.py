"""One short profile of the devices, in memory.

The XLA profiler runs once in a process. While a profile is being taken here,
a caller of jax.profiler waits for a moment instead of failing; while that one
runs, none is taken here.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, Final

import jax

from distlab.devices import jax_internals
from distlab.errors import CaptureError

MOST_BYTES: Final = 64 << 20
"""Profiles beyond this are not read: parsing them would take a minute."""

ANCHOR: Final = "distlab anchor"


class Profile:
    """A profile that is being taken, from here until `stop`.

    The annotation at `anchor_ns` relates the profile's clock to the process's.
    """

    def __init__(self) -> None:
        self._held = ExitStack()
        # One thread may acquire the lock and another one release it.
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

    def stop(self) -> bytes:
        """Ends the profile, once."""
        try:
            return bytes(self._session.stop())
        finally:
            self._held.close()


def _options() -> jax.profiler.ProfileOptions:
    """Returns options for the devices' operations alone: tracing Python costs three times more."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 1
    options.enable_hlo_proto = False
    return options
