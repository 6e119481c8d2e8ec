"""Callbacks: one lets pages and widgets control `fit`, one resumes it at the next batch."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Iterator
from typing import Any, Literal, final

import keras
import numpy as np

from distlab.control.loops import PAUSE_SECONDS, controlled
from distlab.errors import ArgumentValueError, ContextError, UnsupportedError
from distlab.integrations.keras import inputs
from distlab.integrations.orbax.checkpoint import Checkpoint
from distlab.integrations.orbax.manager import CheckpointManager
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown


@final
class Controlled(keras.callbacks.Callback):  # type: ignore[misc]
    """Lets the dashboard and notebook views pause, step, resume and stop `fit`.

    It is `dl.controlled` for Keras' loop: `fit` waits before a batch while it is paused. When it
    is stopped, `fit` ends after the present batch, as with `model.stop_training`.

    Args:
      name: The loop's name in the dashboard and in widgets.
      pause_seconds: The longest pause; then `fit` resumes by itself.

    Raises:
      ArgumentTypeError: `name` is not a string.

    Example:
      >>> import keras
      >>> import numpy as np
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
      ...     model.compile("sgd", "mse")
      >>> x = np.ones((8, 1))
      >>> history = model.fit(x, x, verbose=0, callbacks=[dl.keras.Controlled(name="training")])
      >>> len(history.history["loss"])
      1
    """

    def __init__(self, name: str = "training", pause_seconds: float = PAUSE_SECONDS) -> None:
        super().__init__()
        self._controlled = controlled(itertools.count(), name=name, pause_seconds=pause_seconds)
        self._loop: Iterator[int] = iter(())

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins a loop, which pages list until `fit` ends."""
        del logs
        self._loop = iter(self._controlled)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Waits while the loop is paused."""
        del batch, logs
        if next(self._loop, None) is None:
            self._model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the loop."""
        del logs
        self._loop.close()  # type: ignore[attr-defined]


@final
class BackupAndRestore(keras.callbacks.Callback):  # type: ignore[misc]
    """Resumes an interrupted `fit` at the next batch, with any number of replicas.

    It has the arguments of Keras' callback of that name, which goes back to the beginning of the
    epoch with the weights of its middle, and so applies batches twice. Saved are the model with
    its optimizer, the epoch, the position of the input and the state of the generators that
    shuffle arrays. The metrics of the epoch that is resumed are those of its remaining batches.

    Input that has a position or is read in the same order again: `dl.data` datasets, arrays, and
    `keras.utils.PyDataset`s.

    Args:
      backup_dir: A folder for the backups alone.
      save_freq: `"epoch"`, or the number of batches from one backup to the next.
      double_checkpoint: Ignored: a backup is replaced when the next one is whole.
      delete_checkpoint: Whether to remove the backups when `fit` ends.

    Raises:
      ArgumentValueError: `save_freq` is neither.
      CheckpointError: The folder is a file.

    Example:
      >>> import keras
      >>> import numpy as np
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
      ...     model.compile("sgd", "mse")
      >>> x = np.ones((8, 1))
      >>> backup = dl.keras.BackupAndRestore("backup", save_freq=5)
      >>> history = model.fit(x, x, batch_size=4, epochs=3, verbose=0, callbacks=[backup])
      >>> int(model.optimizer.iterations)
      6
    """

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: Literal["epoch"] | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
    ) -> None:
        super().__init__()
        del double_checkpoint
        given: Any = save_freq
        if given != "epoch" and not is_positive_count(given):
            raise ArgumentValueError(
                f"save_freq must be 'epoch' or a positive number of batches, got {shown(given)}. "
                "Write for example save_freq=100."
            )
        self._every = None if given == "epoch" else int(given)
        self._delete = delete_checkpoint
        self._checkpoint = Checkpoint(
            epoch=0, batch=0, position="", goes_on=False, shuffling="", shuffling_later=""
        )
        self._manager = CheckpointManager(
            self._checkpoint, backup_dir, max_to_keep=1, checkpoint_name="backup"
        )
        self._resume = False
        self._shuffling = ""
        self._reading = inputs.Reading(None, False)
        self._epoch = self._batch = self._unsaved = 0
        self._saved_batch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Restores the newest backup, if an earlier `fit` was interrupted.

        Raises:
          ContextError: The model is not built.
          DataLossError: The backup is damaged.
          CheckpointMismatchError: It is one of another model.
        """
        del logs
        if not self.model.built:
            raise ContextError(
                "BackupAndRestore needs a model that is built before fit, to restore its weights. "
                "Begin it with keras.Input, or call model.build."
            )
        self._checkpoint.model = self.model
        self._resume = self._manager.restore_latest() is not None
        held = self._checkpoint
        steps = self.params.get("steps")
        if self._resume and steps is not None and held.batch >= steps:
            held.epoch, held.batch = held.epoch + 1, 0  # killed after the last batch of an epoch
            held.position = held.position if held.goes_on else ""
        if self._resume:
            self.model._initial_epoch = held.epoch  # as Keras' own callback does
        self._unsaved = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Has the epoch begin where the backup was made."""
        del logs
        held = self._checkpoint
        if self._resume:
            _set_generators(held.shuffling if held.batch else held.shuffling_later)
            position = json.loads(held.position) if held.position else None
            inputs.reads.start = inputs.Start(held.batch, position)
        self._batch = self._saved_batch = held.batch if self._resume else 0
        self._resume = False
        self._epoch, self._shuffling = epoch, _generators()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Notes where the input is.

        Raises:
          UnsupportedError: An epoch goes on where the last one ended, in input without a position.
        """
        del batch, logs
        self._reading = inputs.reads.reading
        if self._reading.goes_on and not hasattr(self._reading.iterator, "get_state"):
            raise UnsupportedError(
                "BackupAndRestore can't resume fit with steps_per_epoch on arrays or generators, "
                "whose position it does not know. Pass a dl.data.Dataset, or leave steps_per_epoch "
                "out."
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves when it is time."""
        del logs
        self._unsaved += batch + 1 - self._batch
        self._batch = batch + 1
        if self._every is not None and self._unsaved >= self._every:
            self._save(self._epoch, self._batch)
            self._saved_batch = self._batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves the beginning of the next epoch."""
        del logs
        if self._every is None or self._saved_batch == self._batch:
            self._save(epoch + 1, 0)

    def on_train_end(self, logs: Any = None) -> None:
        """Removes the backups."""
        del logs
        if self._delete:
            self._manager.remove_all()

    def _save(self, epoch: int, batch: int) -> None:
        self.model.jax_state_sync()
        held, iterator = self._checkpoint, self._reading.iterator
        held.epoch, held.batch, held.position = epoch, batch, ""
        held.goes_on = self._reading.goes_on
        if hasattr(iterator, "get_state") and (batch or self._reading.goes_on):
            held.position = json.dumps(iterator.get_state())
        held.shuffling, held.shuffling_later = self._shuffling, _generators()
        self._manager.save()
        self._unsaved = 0


def _generators() -> str:
    """Returns the state of the generators with which Keras shuffles arrays and PyDatasets."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - Keras uses it
    return json.dumps([[kind, np.asarray(keys).tolist(), *rest], random.getstate()])


def _set_generators(state: str) -> None:
    of_numpy, (version, numbers, gauss) = json.loads(state)
    np.random.set_state(tuple(of_numpy))  # noqa: NPY002
    random.setstate((version, tuple(numbers), gauss))
