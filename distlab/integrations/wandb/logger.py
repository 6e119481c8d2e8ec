"""`WandB`: a logger that writes to a run of Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from distlab.errors import MissingExtraError
from distlab.tracking.logger import Logger, RunFacts

_STEP: Final = "distlab/step"
"""The axis of what is logged: W&B refuses to go back with its own step."""


class WandB(Logger):
    """Logs to Weights & Biases: numbers and texts to its history, facts to its config, pictures.

    By default it logs to the active run, as after `wandb.init()`, and leaves that open. Without
    one it makes a run in the logger's thread, which ends with the recording. Its numbers have the
    axis `distlab/step`.

    Args:
      run: The run to log to; by default the active one.
      **init: Arguments of `wandb.init` for a new run, such as `project="digits"` and
        `mode="offline"`. Its name is by default that of the recording.

    Attributes:
      run: The run that is logged to; None before a new one is made.

    Raises:
      MissingExtraError: wandb is not installed.

    Example:
      >>> import distlab as dl
      >>> logger = dl.loggers.WandB(project="digits", mode="disabled")
      >>> with dl.record(None, name="first", loggers=[logger]) as recording:
      ...     recording.log(3, loss=0.5)
      >>> logger.run.summary["loss"]
      0.5
    """

    def __init__(self, run: Any = None, **init: Any) -> None:
        wandb = _wandb()
        self._init = init
        self.run: Any = run if run is not None or init else wandb.run
        self._own = self.run is None
        self._axes: set[str] = set()

    def start(self, run: RunFacts) -> None:
        """Makes the run, unless there is one."""
        self._axes = {_STEP}
        if self._own:
            self.run = _wandb().init(**{"name": run.name or None, **self._init})
        self.run.define_metric(_STEP, hidden=True)

    def log_facts(self, facts: Mapping[str, str]) -> None:
        """Adds the facts to the config, below `distlab`."""
        self.run.config.update({"distlab": dict(facts)}, allow_val_change=True)

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        """Logs numbers."""
        del unix_ns
        self._log(step, values)

    def log_text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        """Logs a text."""
        del unix_ns
        self._log(step, {name: text})

    def log_images(
        self, step: int, images: Mapping[str, npt.NDArray[np.uint8]], unix_ns: int
    ) -> None:
        """Logs pictures."""
        del unix_ns
        image = _wandb().Image
        self._log(step, {name: image(pixels) for name, pixels in images.items()})

    def finish(self, status: str, message: str) -> None:
        """Ends a run that this logger made."""
        if message:
            self.run.summary["distlab/message"] = message
        if self._own:
            self.run.finish(exit_code=1 if status == "failed" else 0)

    def _log(self, step: int, values: Mapping[str, Any]) -> None:
        for name in values:
            if name not in self._axes and "*" not in name:  # there a star is any text
                self._axes.add(name)
                self.run.define_metric(name, step_metric=_STEP)
        self.run.log({_STEP: step, **values})


def _wandb() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise MissingExtraError(
            "This logger writes with wandb, which is not installed. Install it with: pip install "
            '"distlab[loggers]".'
        ) from error
    return wandb
