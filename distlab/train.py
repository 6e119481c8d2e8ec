"""`tf.train`: checkpoints, saved under one strategy and restored under another or none.

It needs Orbax: `pip install 'distlab[checkpoint]'`.

Example:
  >>> import distlab as dl
  >>> with dl.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
  ...     weights = dl.Variable([1.0, 2.0])
  >>> path = dl.train.Checkpoint(weights=weights).save("checkpoints/ckpt")
  >>> fewer = dl.Variable([0.0, 0.0])
  >>> _ = dl.train.Checkpoint(weights=fewer).restore(path).assert_consumed()
  >>> fewer.numpy().tolist()
  [1.0, 2.0]
"""

from __future__ import annotations

from distlab.integrations.orbax.backup import BackupAndRestore
from distlab.integrations.orbax.checkpoint import Checkpoint
from distlab.integrations.orbax.manager import (
    CheckpointManager,
    latest_checkpoint,
    list_variables,
    load_variable,
)
from distlab.integrations.orbax.status import CheckpointLoadStatus, CheckpointOptions

__all__ = [
    "BackupAndRestore",
    "Checkpoint",
    "CheckpointLoadStatus",
    "CheckpointManager",
    "CheckpointOptions",
    "latest_checkpoint",
    "list_variables",
    "load_variable",
]
