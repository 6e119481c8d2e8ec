"""A logger whose exceptions end nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from distlab.tracking.logger import Logger, RunFacts


class GuardedLogger(Logger):
    """Calls a logger, and counts and reports what it raises.

    After `start` has raised, the other methods are not called.

    Args:
      logger: The logger.
      report: Called with each exception.

    Attributes:
      calls: Number of calls so far.
      failures: Number of those that raised.
    """

    def __init__(self, logger: Logger, report: Callable[[BaseException], None]) -> None:
        self.calls = self.failures = 0
        self._logger = logger
        self._report = report
        self._given_up = False

    def start(self, run: RunFacts) -> None:
        """Starts the logger, or gives it up."""
        self._given_up = not self._call(self._logger.start, run)

    def log_facts(self, facts: Mapping[str, str]) -> None:
        """Passes facts on."""
        self._call(self._logger.log_facts, facts)

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        """Passes numbers on."""
        self._call(self._logger.log_scalars, step, values, unix_ns)

    def log_text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        """Passes a text on."""
        self._call(self._logger.log_text, step, name, text, unix_ns)

    def log_images(
        self, step: int, images: Mapping[str, npt.NDArray[np.uint8]], unix_ns: int
    ) -> None:
        """Passes pictures on."""
        self._call(self._logger.log_images, step, images, unix_ns)

    def flush(self) -> None:
        """Flushes the logger."""
        self._call(self._logger.flush)

    def finish(self, status: str, message: str) -> None:
        """Ends the logger."""
        self._call(self._logger.finish, status, message)

    def _call(self, method: Callable[..., None], *args: Any) -> bool:
        if self._given_up:
            return False
        self.calls += 1
        try:
            method(*args)
        except BaseException as error:  # noqa: BLE001 - nothing of a logger ends the training
            self.failures += 1
            self._report(error)
            return False
        return True
