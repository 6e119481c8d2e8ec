"""Advice on a run that is read, renewed while it grows."""

from __future__ import annotations

import time
from typing import Final

from distlab.advice import advise_on
from distlab.events import Advice
from distlab.folds import Folds

_SECONDS: Final = 2.0
_MOST_SECONDS: Final = 4.0
_SHARE: Final = 0.01
"""The share of the reader's time that advice takes, more where that were rarer than 4 s."""


class NewestAdvice:
    """The advice on the events that some folds have read; one thread at a time renews it."""

    def __init__(self, folds: Folds) -> None:
        self._folds = folds
        self._found: list[Advice] = []
        self._version = -1
        self._due_s = 0.0

    def renewed(self, *, at_once: bool = False) -> list[Advice]:
        """Returns the findings: the same list until there may be others.

        They are renewed rarely where that takes long, but every 4 s; with `at_once` whenever
        there is new evidence.
        """
        folds, began = self._folds, time.monotonic()
        version = folds.version("evidence") + folds.version("workers")
        if version == self._version or (began < self._due_s and not at_once):
            return self._found
        self._version = version
        self._found = advise_on(folds.columns("evidence"), folds.columns("workers"))
        rest = max(_SECONDS, (time.monotonic() - began) / _SHARE)
        self._due_s = began + min(rest, _MOST_SECONDS)
        return self._found
