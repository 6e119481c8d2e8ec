"""Several checkpoints in a folder, of which the newest are kept, and how to read one's arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np

from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.integrations.orbax import files
from distlab.integrations.orbax.checkpoint import Checkpoint
from distlab.integrations.orbax.entry import Saved
from distlab.integrations.orbax.status import CheckpointOptions
from distlab.text.counts import is_number, is_positive_count
from distlab.text.shown import shown


@final
class CheckpointManager:
    """Keeps the newest checkpoints of a folder (`tf.train.CheckpointManager`).

    Args:
      checkpoint: The `Checkpoint` to save and restore.
      directory: The folder; it is made when needed.
      max_to_keep: The number of checkpoints to keep; None keeps all.
      keep_checkpoint_every_n_hours: Beyond these, the oldest one is kept, and then one every so
        many hours.
      checkpoint_name: The folders are called `<checkpoint_name>-<number>`.
      step_counter: What `checkpoint_interval` counts: a variable, or a function that returns a
        number.
      checkpoint_interval: The least number of steps from one checkpoint to the next: a `save` that
        comes earlier does nothing.
      init_fn: What `restore_or_initialize` calls where there is no checkpoint.
      keep_every: Beyond these, all checkpoints are kept whose number is a multiple of this.
      enable_async: Whether a thread writes, as with `CheckpointOptions(enable_async=True)`.

    Attributes:
      checkpoint: The `Checkpoint`.
      directory: The folder's path.
      checkpoint_interval: The least number of steps between checkpoints.

    Raises:
      CheckpointError: The folder is a file.
      ArgumentValueError: An argument is out of range, or lacks another one.

    Example:
      >>> import distlab as dl
      >>> weight = dl.Variable(1.0)
      >>> checkpoint = dl.train.Checkpoint(weight=weight)
      >>> manager = dl.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
      >>> for _ in range(3):
      ...     path = manager.save()
      >>> [path.rpartition("/")[2] for path in manager.checkpoints]
      ['ckpt-2', 'ckpt-3']
      >>> _ = weight.assign(0.0)
      >>> manager.restore_or_initialize() == manager.latest_checkpoint, float(weight)
      (True, 1.0)
    """

    def __init__(  # noqa: PLR0917 - TensorFlow's order
        self,
        checkpoint: Checkpoint,
        directory: str | os.PathLike[str],
        max_to_keep: int | None = 5,
        keep_checkpoint_every_n_hours: float | None = None,
        checkpoint_name: str = "ckpt",
        step_counter: Any = None,
        checkpoint_interval: int | None = None,
        init_fn: Callable[[], Any] | None = None,
        *,
        keep_every: int | None = None,
        enable_async: bool = False,
    ) -> None:
        if not isinstance(checkpoint, Checkpoint):
            raise ArgumentTypeError(
                f"CheckpointManager needs a dl.train.Checkpoint first, got {shown(checkpoint)}. "
                "Write dl.train.Checkpoint(model=..., optimizer=...)."
            )
        limits: dict[str, Any] = {
            "max_to_keep": max_to_keep,
            "keep_checkpoint_every_n_hours": keep_checkpoint_every_n_hours,
            "checkpoint_interval": checkpoint_interval,
            "keep_every": keep_every,
        }
        for name, number in limits.items():
            hours = name == "keep_checkpoint_every_n_hours"
            fits = is_number(number) and number > 0 if hours else is_positive_count(number)
            if number is not None and not fits:
                kind = "positive number" if hours else "positive whole number"
                raise ArgumentValueError(
                    f"{name} must be a {kind} or None, got {shown(number)}. Write for example "
                    f"{name}=5."
                )
        if checkpoint_interval is not None and step_counter is None:
            raise ArgumentValueError(
                "checkpoint_interval counts steps, so it needs step_counter: the variable that "
                "counts them, or a function that returns their number."
            )
        self.checkpoint = checkpoint
        self.checkpoint_interval = checkpoint_interval
        self._folder, self._name = files.absolute(directory), checkpoint_name
        self._kept = max_to_keep, keep_checkpoint_every_n_hours, keep_every
        files.found(self._folder)  # refuses a file
        self._step_counter = step_counter
        self._init_fn = init_fn
        self._options = CheckpointOptions(enable_async=enable_async)
        self._last_step: int | None = None

    @property
    def directory(self) -> str:
        """The folder's path."""
        return str(self._folder)

    @property
    def checkpoints(self) -> list[str]:
        """The paths of all checkpoints in the folder, the oldest first.

        Raises:
          CheckpointError: The thread that writes one could not.
        """
        self.sync()  # one that is being written is the newest
        return [str(path) for path in files.found(self._folder, self._name)]

    @property
    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint; None where there is none.

        Raises:
          CheckpointError: The thread that writes it could not.
        """
        found = self.checkpoints
        return found[-1] if found else None

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Writes a checkpoint, then removes those that are not to be kept.

        Args:
          checkpoint_number: Its number; by default the checkpoint's `save_counter`.
          check_interval: Whether to do nothing before `checkpoint_interval` steps have passed.
          options: A `CheckpointOptions`, instead of `enable_async`.

        Returns:
          The checkpoint's path; None where nothing was done.

        Raises:
          CheckpointError: It could not be written; no other one was removed.
          ArgumentValueError: The number is none, or negative.

        Example:
          >>> import distlab as dl
          >>> checkpoint = dl.train.Checkpoint(step=1)
          >>> manager = dl.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=1)
          >>> manager.save(checkpoint_number=40).endswith("ckpt-40")
          True
        """
        with self.checkpoint.one_at_a_time:
            return self._save(checkpoint_number, check_interval, options)

    def _save(self, checkpoint_number: Any, check_interval: bool, options: Any) -> str | None:
        step = self._step()
        if check_interval and self.checkpoint_interval is not None and self._last_step is not None:
            assert step is not None
            if step - self._last_step < self.checkpoint_interval:
                return None
        checkpoint = self.checkpoint
        if checkpoint_number is not None:
            checkpoint_number = _whole_number("checkpoint_number", checkpoint_number)
        checkpoint.save_counter += 1  # a save that fails, or is interrupted, uses its number up
        number = checkpoint.save_counter if checkpoint_number is None else checkpoint_number
        path = self._folder / f"{self._name}-{number}"

        def write(state: dict[str, Saved]) -> None:
            files.write(path, state)
            files.retain(self._folder, self._name, *self._kept)

        checkpoint.write_by(write, self._options if options is None else options)
        self._last_step = step
        return str(path)

    def restore_latest(self, *, partial: bool = False) -> str | None:
        """Restores the newest checkpoint.

        Args:
          partial: As for `Checkpoint.restore`.

        Returns:
          Its path; None where there is none.

        Raises:
          DataLossError: It is damaged.
          CheckpointMismatchError: It is one of other objects.
        """
        path = self.latest_checkpoint
        self.checkpoint.restore(path, partial=partial)
        if path is not None:
            self._last_step = self._step()
        return path

    def restore_or_initialize(self, *, partial: bool = False) -> str | None:
        """Restores the newest checkpoint, or calls `init_fn` where there is none.

        Args:
          partial: As for `Checkpoint.restore`.

        Returns:
          The checkpoint's path; None where there is none.

        Raises:
          DataLossError: It is damaged.
          CheckpointMismatchError: It is one of other objects.
        """
        path = self.restore_latest(partial=partial)
        if path is None and self._init_fn is not None:
            self._init_fn()
        return path

    def sync(self) -> None:
        """Waits for the thread that writes a checkpoint, if there is one."""
        self.checkpoint.sync()

    def _step(self) -> int | None:
        counter = self._step_counter() if callable(self._step_counter) else self._step_counter
        return None if counter is None else _whole_number("step_counter", counter)

    def remove_all(self) -> None:
        """Removes all its checkpoints."""
        for path in self.checkpoints:
            files.remove(Path(path))


def latest_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> str | None:
    """Returns the path of the newest checkpoint in a folder (`tf.train.latest_checkpoint`).

    Args:
      checkpoint_dir: The folder.

    Returns:
      The path; None where there is no checkpoint.

    Raises:
      CheckpointError: The folder is a file.

    Example:
      >>> import distlab as dl
      >>> path = dl.train.Checkpoint(step=7).save("checkpoints/ckpt")
      >>> dl.train.latest_checkpoint("checkpoints") == path
      True
    """
    found = files.found(files.absolute(checkpoint_dir))
    return str(found[-1]) if found else None


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
    place = files.absolute(path)
    if not place.is_dir() or (place / "objects").exists():
        return place
    newest = latest_checkpoint(place)
    if newest is None:
        raise ArgumentValueError(
            f"The folder {place} has no checkpoint <name>-<number>. Save one there first, or pass "
            "the path of a checkpoint itself."
        )
    return Path(newest)


def _whole_number(name: str, value: Any) -> int:
    """Returns the whole number that a number, an array or a variable holds."""
    try:
        array = np.asarray(value)
        number = int(array)
    except (TypeError, ValueError, OverflowError):
        number = -1
    if number < 0 or number != array or array.dtype.kind == "b":
        raise ArgumentValueError(
            f"{name} must be a whole number of at least 0, got {shown(value)}. Write for example "
            f"{name}=step, a variable that counts steps."
        )
    return number
