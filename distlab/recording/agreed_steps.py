"""The steps at which all processes of a run take their short captures.

One profile shows all devices where each process profiles the same steps. Process 0 names a step
that no process has reached, in the key-value store; the others look for it.
"""

from __future__ import annotations

import itertools
import time
from typing import Final

from distlab.errors import DistlabError
from distlab.processes import group
from distlab.processes.group import ProcessGroup

_AHEAD_SECONDS: Final = 0.5
_FEWEST_AHEAD: Final = 32
"""Steps from the naming of a step to the step: no process is so far ahead of another."""

_numbers = itertools.count()


class AgreedSteps:
    """Names, or looks for, one step after another."""

    def __init__(self, processes: ProcessGroup, number: int) -> None:
        self._processes = processes
        self._number = number
        self._captures = 0
        self._before: tuple[float, int] | None = None

    def next(self, now: int) -> int | None:
        """Returns the step of the next capture; None while none is named."""
        try:
            return self._name(now) if self._processes.is_chief else self._look(now)
        except DistlabError:  # the processes part: there is nobody to agree with
            return None

    def _key(self) -> str:
        return f"capture/{self._number}/{self._captures}"

    def _name(self, now: int) -> int | None:
        """Names a step; the first call notes how fast steps are."""
        moment = time.monotonic()
        if self._before is None:
            self._before = (moment, now)
            return None
        since, step = self._before
        self._before = None
        rate = (now - step) / max(moment - since, 1e-3)
        named = now + max(_FEWEST_AHEAD, round(rate * _AHEAD_SECONDS))
        self._processes.kv.set(self._key(), str(named))
        self._captures += 1
        return named

    def _look(self, now: int) -> int | None:
        """Returns the newest step that was named and is still to come."""
        found = None
        while (text := self._processes.kv.find(self._key())) is not None:
            self._captures += 1
            found = int(text)
        return found if found is not None and found > now else None


def agreed_steps() -> AgreedSteps | None:
    """Returns how the processes agree on a new recording's captures; None for one process."""
    processes = group.current()
    return None if processes is None else AgreedSteps(processes, next(_numbers))
