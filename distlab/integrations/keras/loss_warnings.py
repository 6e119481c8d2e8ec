"""Warnings of losses: replicas find them, maybe in threads, and the step's caller says them."""

from __future__ import annotations

import sys
import warnings
from typing import Final, final

from distlab.errors import ScalarLossWarning

_CALLERS: Final = ("distlab", "jax", "keras")


@final
class LossWarnings:
    """The warnings of one model."""

    def __init__(self) -> None:
        self._said: dict[str, bool] = {}

    def take(self, messages: list[str]) -> None:
        """Keeps what a replica's step found.

        Args:
          messages: What to say of its loss.
        """
        for message in messages:
            self._said.setdefault(message, False)

    def say(self) -> None:
        """Says each once, at the line of the user's program that called Keras."""
        for message in [message for message, said in self._said.items() if not said]:
            self._said[message] = True
            warnings.warn(message, ScalarLossWarning, stacklevel=_users_level())


def _users_level() -> int:
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _package(frame.f_globals) in _CALLERS:
        level, frame = level + 1, frame.f_back
    return level


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
