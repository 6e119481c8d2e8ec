"""The base of loggers, and the facts of a run that they receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run when its logger starts.

    Attributes:
      name: The run's name.
      path: The run's folder; None where nothing is stored.
      unix_ns: When it began, in nanoseconds since 1970.
      total_steps: Steps that the run is meant to take, None when unknown.

    Example:
      >>> import distlab as dl
      >>> facts = dl.loggers.RunFacts("first", path=None, unix_ns=0, total_steps=100)
      >>> facts.name
      'first'
    """

    name: str
    path: Path | None
    unix_ns: int
    total_steps: int | None


class Logger:
    """Receives what a run reports, to pass it on to another tool.

    Derive from it and override what the tool has a place for; the other methods do nothing.
    `start` is called first, `finish` last. All calls come from one thread, which is the logger's
    own: it reads the recording's events from memory, so a slow logger never makes the training
    wait. A logger that stays behind by more events than memory keeps (32,768) misses the oldest
    of them, which the run records as a `lost` event. What a method raises is counted and reported
    once, as a `RuntimeWarning` and as an `error` event of the run; the training goes on, and so
    do the calls, except when `start` raised. Names that begin with `distlab/` are distlab's own.

    Example:
      >>> import distlab as dl
      >>> class Losses(dl.loggers.Logger):
      ...     def log_scalars(self, step, values, unix_ns):
      ...         if "loss" in values:
      ...             print(f"step {step}: {values['loss']}")
      >>> with dl.record(None, loggers=[Losses()]) as recording:
      ...     recording.log(0, loss=0.5)
      step 0: 0.5
    """

    of_each_process: bool = False
    """True to log in each of several processes, and not in the first one alone."""

    def start(self, run: RunFacts) -> None:
        """Begins; called once, before the first of what follows.

        Args:
          run: What is known of the run.
        """

    def log_facts(self, facts: Mapping[str, str]) -> None:
        """Receives what describes the run, and again when there is more, such as a strategy.

        Args:
          facts: Name to text: `host`, `platform`, `devices`, `strategy`, `replicas`, and the
            versions of `python`, `jax`, `jaxlib` and `distlab`.
        """

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        """Receives numbers: those of `Recording.log`, and once a second distlab's own.

        Args:
          step: The step they belong to, 0 for what was logged before the first one.
          values: Name to number, which may be nan or infinite.
          unix_ns: When they were logged, in nanoseconds since 1970.
        """

    def log_text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        """Receives a text: an advice, an error, what was compiled or lost.

        Args:
          step: The last step.
          name: What it is, such as `"distlab/advice"`.
          text: The text, as Markdown.
          unix_ns: When it was recorded, in nanoseconds since 1970.
        """

    def log_images(
        self, step: int, images: Mapping[str, npt.NDArray[np.uint8]], unix_ns: int
    ) -> None:
        """Receives pictures of the examples that each replica got of a batch.

        Args:
          step: The step that comes after the batch.
          images: Name, such as `"distlab/batch/replica 0"`, to pixels `(height, width)` or
            `(height, width, 3)`; a replica without examples has none.
          unix_ns: When the batch was divided, in nanoseconds since 1970.
        """

    def flush(self) -> None:
        """Passes on what was collected; called after each group of calls."""

    def finish(self, status: str, message: str) -> None:
        """Ends, after the last call.

        Args:
          status: `"finished"`, `"stopped"`, `"failed"` or `"interrupted"`; `"running"` where a
            recorded run that has no end is read.
          message: The exception's text, empty when nothing was raised.
        """
