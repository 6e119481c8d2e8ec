"""Takes a profile of whatever runs now and then, where steps are not counted.

Which program takes how much of the devices' time can't be heard, as JAX reports compilations
alone. Profiles of some milliseconds show it, so seldom that they cost a hundredth of the time.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

import jax

from distlab.devices import jax_internals
from distlab.errors import CaptureError
from distlab.profiling.capture import Capturer
from distlab.profiling.helper_thread import HelperThread

_PROFILE_SECONDS: Final = 0.1
_SHARE: Final = 0.01
"""The share of the time that profiles may cost."""

_FIRST_SECONDS: Final = 0.5
_SHORTEST_REST: Final = 1.0
_LONGEST_REST: Final = 60.0
_READ_SECONDS: Final = 60.0
_MOST_BYTES: Final = 8 << 20


class Sampler:
    """Takes profiles until it is stopped."""

    def __init__(self, capturer: Capturer) -> None:
        self._capturer = capturer
        self._thread = HelperThread("distlab sampler", self._work)
        self._thread.wake()

    def stop(self) -> None:
        """Stops taking profiles; one that is running goes on to its end."""
        self._thread.end()

    def _work(self) -> None:
        self._thread.rest(0.0)  # of the wake that started it
        rest = _FIRST_SECONDS
        while True:
            self._thread.rest(rest)
            if self._thread.stopping:
                return
            if not jax_internals.backend_started():
                continue
            if jax.default_backend() != "cpu":
                return  # the cost of starting a profile was measured on CPU only
            rest = min(max(self._sample() / _SHARE, _SHORTEST_REST), _LONGEST_REST)

    def _sample(self) -> float:
        """Takes a profile; returns the seconds of processor time that reading it cost."""
        try:
            taken = self._capturer.start(1 << 30, _PROFILE_SECONDS, "recorder", _MOST_BYTES)
            return taken.result(_READ_SECONDS).cost_ns / 1e9
        except (CaptureError, FutureTimeoutError):  # another profile is being taken, or none ran
            return 0.0
