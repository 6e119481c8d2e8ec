"""How a checkpoint is written, and where."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.flags import flag_refusal
from distlab.text.paths import at_home, search_refusal
from distlab.text.shown import shown


@final
@dataclass(frozen=True)
class CheckpointOptions:
    """How a checkpoint is written (`tf.train.CheckpointOptions`).

    Attributes:
      enable_async: Whether `save` and `write` return when the values are copied, and a thread
        writes them. `sync()` waits for it, the next save does, and so does the end of the process.
      experimental_enable_async_checkpoint: The same, under its first name.

    Raises:
      ArgumentTypeError: An option is neither True nor False.

    Example:
      >>> import distlab as dl
      >>> options = dl.train.CheckpointOptions(enable_async=True)
      >>> checkpoint = dl.train.Checkpoint(step=3)
      >>> path = checkpoint.write("checkpoints/last", options)
      >>> checkpoint.sync()
    """

    enable_async: bool = False
    experimental_enable_async_checkpoint: bool = False

    def __post_init__(self) -> None:
        """Checks the options."""
        for name, value in vars(self).items():
            if refusal := flag_refusal(name, value):
                raise ArgumentTypeError(refusal)

    @property
    def in_background(self) -> bool:
        """Whether a thread writes."""
        return self.enable_async or self.experimental_enable_async_checkpoint


def checked(options: Any) -> CheckpointOptions:
    """Returns options, the default ones for None."""
    if options is None:
        return CheckpointOptions()
    if not isinstance(options, CheckpointOptions):
        raise ArgumentTypeError(
            f"options must be dl.train.CheckpointOptions, got {shown(options)}. Leave them out "
            "for the default."
        )
    return options


def absolute(path: Any) -> Path:
    """Returns a path as an absolute one."""
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise ArgumentTypeError(
            f"A checkpoint's path must be a string or a path, got {shown(path)}. Write for example "
            "'checkpoints/ckpt'."
        )
    if refusal := search_refusal(path, "A checkpoint"):
        raise ArgumentValueError(refusal)
    return Path(at_home(os.fspath(path))).absolute()


def absolute_name(path: Any) -> Path:
    """Returns the path of one checkpoint as an absolute one."""
    found = absolute(path)
    if not found.name:
        raise ArgumentValueError(
            f"A checkpoint's path ends in its name, got {shown(path)}. Write for example "
            "'checkpoints/ckpt'."
        )
    return found
