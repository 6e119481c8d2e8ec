"""What is in a checkpoint, read without its objects."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from distlab.errors import ArgumentValueError
from distlab.integrations.orbax import files
from distlab.integrations.orbax.manager import latest_checkpoint
from distlab.integrations.orbax.options import absolute
from distlab.text.shown import shown


def list_variables(ckpt_dir_or_file: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Returns the name and shape of each array in a checkpoint (`tf.train.list_variables`).

    Args:
      ckpt_dir_or_file: The checkpoint's path, or the folder of which the newest one is meant.

    Raises:
      NotFoundError: There is no such path.
      ArgumentValueError: The folder has no checkpoint.
      DataLossError: The checkpoint is damaged.

    Example:
      >>> import distlab as dl
      >>> model = {"kernel": dl.Variable([[1.0, 2.0]]), "bias": dl.Variable([0.0])}
      >>> path = dl.train.Checkpoint(model=model).save("checkpoints/ckpt")
      >>> dl.train.list_variables(path)
      [('model/bias', [1]), ('model/kernel', [1, 2])]
      >>> dl.train.list_variables("checkpoints") == dl.train.list_variables(path)
      True
    """
    entries = files.entries(_checkpoint_at(ckpt_dir_or_file))
    return sorted((name, list(entry.shape)) for name, entry in entries.items() if entry.has_array)


def load_variable(ckpt_dir_or_file: str | os.PathLike[str], name: str) -> np.ndarray[Any, Any]:
    """Returns an array in a checkpoint (`tf.train.load_variable`).

    Args:
      ckpt_dir_or_file: The checkpoint's path, or the folder of which the newest one is meant.
      name: One of the names that `list_variables` returns.

    Raises:
      NotFoundError: There is no such path.
      ArgumentValueError: The folder has no checkpoint, or the checkpoint no array of that name.
      DataLossError: The checkpoint is damaged.

    Example:
      >>> import distlab as dl
      >>> path = dl.train.Checkpoint(bias=dl.Variable([0.5])).save("checkpoints/ckpt")
      >>> dl.train.load_variable(path, "bias").tolist()
      [0.5]
      >>> dl.train.load_variable("checkpoints", "bias").tolist()
      [0.5]
    """
    path = _checkpoint_at(ckpt_dir_or_file)
    entries = files.entries(path)
    names = sorted(known for known, entry in entries.items() if entry.has_array)
    if name not in names:
        has = f"It has {', '.join(names)[:400]}" if names else "It has none"
        raise ArgumentValueError(
            f"{path} has no array {shown(name)}. {has}. Pass one of the names that "
            "dl.train.list_variables returns."
        )
    return files.arrays(path, entries, [name])[name]


def _checkpoint_at(path: str | os.PathLike[str]) -> Path:
    """Returns the path of a checkpoint, which is the newest one of a folder of checkpoints."""
    place = absolute(path)
    if not place.is_dir() or files.looks_like_checkpoint(place):
        return place
    newest = latest_checkpoint(place)
    if newest is None:
        raise ArgumentValueError(
            f"The folder {place} has no checkpoint <name>-<number>. Save one there first, or pass "
            "the path of a checkpoint itself."
        )
    return Path(newest)
