"""`TensorBoard`: a logger that writes event files, without TensorFlow or TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from distlab.errors import ArgumentValueError, RecordError
from distlab.text.paths import at_home, path_refusal
from distlab.text.png import encode
from distlab.text.shown import shown, shown_clause
from distlab.tracking.event_files import EventFile
from distlab.tracking.logger import Logger, RunFacts


class TensorBoard(Logger):
    """Writes a run for TensorBoard: `tensorboard --logdir logs` shows it, live and afterwards.

    Numbers are scalars, advice, errors and what was compiled are texts, and batches are images,
    one for each replica. `dl.record(..., tensorboard="logs")` is short for
    `loggers=[dl.loggers.TensorBoard("logs")]`, and `Run.to_tensorboard` writes a recorded run.

    Args:
      logdir: The folder for the event file, created when missing. TensorBoard shows each folder
        as a run of its own.

    Attributes:
      path: The newest event file; None before the first.

    Raises:
      ArgumentValueError: `logdir` is a URL.
      RecordError: The folder can't be created.

    Example:
      >>> import distlab as dl
      >>> logger = dl.loggers.TensorBoard("logs")
      >>> with dl.record(None, loggers=[logger]) as recording:
      ...     recording.log(0, loss=0.5)
      >>> logger.path.name.partition(".tfevents.")[0]
      'events.out'
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        if refusal := path_refusal(logdir, "TensorBoard's log"):
            raise ArgumentValueError(refusal)
        # The program may change its directory.
        self._folder = Path(at_home(os.fspath(logdir))).absolute()
        self.path: Path | None = None
        self._file: EventFile | None = None
        self._began_ns = self._last_ns = self._last_step = 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            raise RecordError(
                f"The folder {shown(str(logdir))} for TensorBoard can't be created: "
                f"{shown_clause(error)}. Name a folder that you can write to."
            ) from error

    def start(self, run: RunFacts) -> None:
        """Begins a new event file."""
        self._file = EventFile(self._folder, run.unix_ns)
        self.path = self._file.path
        self._began_ns = self._last_ns = run.unix_ns
        self._last_step = 0

    def log_facts(self, facts: Mapping[str, str]) -> None:
        """Writes the facts as a table."""
        rows = (f"| {name} | {text} |" for name, text in facts.items())
        table = "\n".join(["| | |", "| --- | --- |", *rows])
        self._open().text(0, "distlab/run", table, self._began_ns)

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        """Writes numbers."""
        self._last_step, self._last_ns = step, unix_ns
        self._open().scalars(step, values, unix_ns)

    def log_text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        """Writes a text."""
        self._open().text(step, name, text, unix_ns)

    def log_images(
        self, step: int, images: Mapping[str, npt.NDArray[np.uint8]], unix_ns: int
    ) -> None:
        """Writes pictures."""
        for name, pixels in images.items():
            height, width = pixels.shape[:2]
            channels = pixels.shape[2] if pixels.ndim == 3 else 1
            size = (height, width, channels)
            self._open().image(step, name, encode(pixels), size, unix_ns)

    def flush(self) -> None:
        """Writes to the disk what was collected."""
        self._open().flush()

    def finish(self, status: str, message: str) -> None:
        """Ends the file."""
        if status == "failed":
            text = f"failed: {message}"
            self._open().text(self._last_step, "distlab/end", text, self._last_ns)
        self.close()

    def close(self) -> None:
        """Closes the file, if one is open."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self) -> EventFile:
        assert self._file is not None, "start comes first"
        return self._file
