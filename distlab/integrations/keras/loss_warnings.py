"""Warnings of losses: replicas find them, maybe in threads, and the step's caller says them."""

from __future__ import annotations

from typing import final

from distlab.errors import ScalarLossWarning
from distlab.user_code import warn


@final
class LossWarnings:
    """The warnings of one model."""

    def __init__(self) -> None:
        self._said: dict[str, bool] = {}

    def take(self, messages: list[str]) -> None:
        """Keeps what a replica's step found."""
        for message in messages:
            self._said.setdefault(message, False)

    def say(self) -> None:
        """Says each once, at the line of the user's program that called Keras."""
        for message in [message for message, said in self._said.items() if not said]:
            self._said[message] = True
            warn(message, ScalarLossWarning)
