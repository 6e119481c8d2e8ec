"""What is in a checkpoint, read without its objects."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from distlab.errors import ArgumentValueError
from distlab.integrations.orbax import files
from distlab.integrations.orbax.options import absolute
from distlab.text.shown import shown


def list_variables(checkpoint: str | os.PathLike[str]) -> list[tuple[str, list[int]]]:
    """Returns the name and shape of each array in a checkpoint (`tf.train.list_variables`).

    Args:
      checkpoint: The checkpoint's path.

    Raises:
      NotFoundError: There is no such checkpoint.
      DataLossError: It is damaged.

    Example:
      >>> import distlab as dl
      >>> model = {"kernel": dl.Variable([[1.0, 2.0]]), "bias": dl.Variable([0.0])}
      >>> path = dl.train.Checkpoint(model=model).save("checkpoints/ckpt")
      >>> dl.train.list_variables(path)
      [('model/bias', [1]), ('model/kernel', [1, 2])]
    """
    entries = files.entries(absolute(checkpoint))
    return sorted((name, list(entry.shape)) for name, entry in entries.items() if entry.has_array)


def load_variable(checkpoint: str | os.PathLike[str], name: str) -> np.ndarray[Any, Any]:
    """Returns an array in a checkpoint (`tf.train.load_variable`).

    Args:
      checkpoint: The checkpoint's path.
      name: One of the names that `list_variables` returns.

    Raises:
      NotFoundError: There is no such checkpoint.
      DataLossError: It is damaged.
      ArgumentValueError: It has no array of that name.

    Example:
      >>> import distlab as dl
      >>> path = dl.train.Checkpoint(bias=dl.Variable([0.5])).save("checkpoints/ckpt")
      >>> dl.train.load_variable(path, "bias").tolist()
      [0.5]
    """
    path = absolute(checkpoint)
    entries = files.entries(path)
    if name not in entries or not entries[name].has_array:
        names = sorted(known for known, entry in entries.items() if entry.has_array)
        raise ArgumentValueError(
            f"{path} has no array {shown(name)}. It has {', '.join(names)[:400]}."
        )
    return files.arrays(path, entries, [name])[name]
