"""Several checkpoints in a folder, of which the newest are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from distlab.errors import ArgumentTypeError, ArgumentValueError, CheckpointError
from distlab.integrations.orbax import files
from distlab.integrations.orbax.checkpoint import Checkpoint, used_folders
from distlab.integrations.orbax.options import CheckpointOptions, absolute
from distlab.integrations.orbax.workers import is_writer
from distlab.text.counts import is_number, is_positive_count
from distlab.text.shown import shown
from distlab.uncopied import Uncopied
from distlab.user_code import warn

_NAME: Final = re.compile(r"[^/\\\0]+")
_SECONDS_AN_HOUR: Final = 3600
_NANOSECONDS: Final = 1_000_000_000


@final
class CheckpointManager(Uncopied):
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

    _uncopied = (
        "A CheckpointManager can't be copied or pickled: two would remove each other's "
        "checkpoints. Make one of another folder, dl.train.CheckpointManager(checkpoint, folder, "
        "max_to_keep)."
    )

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
        if init_fn is not None and not callable(init_fn):
            raise ArgumentTypeError(
                f"init_fn must be a function or None, got {shown(init_fn)}. Write for example "
                "init_fn=lambda: weights.assign(start)."
            )
        first: Any = checkpoint_name
        if not isinstance(first, str) or not _NAME.fullmatch(first):
            raise ArgumentValueError(
                f"checkpoint_name must be the first part of a folder's name, got {shown(first)}. "
                "Write for example checkpoint_name='ckpt', and the folder as directory."
            )
        self.checkpoint = checkpoint
        self.checkpoint_interval = checkpoint_interval
        self._folder = absolute(directory)
        _require_folder(self._folder)
        self._name = checkpoint_name
        self._step_counter = step_counter
        self._init_fn = init_fn
        self._max_to_keep = max_to_keep
        self._every_hours = keep_checkpoint_every_n_hours
        self._every_number = keep_every
        self._options = CheckpointOptions(enable_async=enable_async)
        self._last_step: int | None = None
        self._strange: set[Path] | None = None

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
        return [str(path) for path in _whole(self._folder, self._name)]

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
          options: A `CheckpointOptions`, in place of `enable_async`.

        Returns:
          The checkpoint's path; None where nothing was done.

        Raises:
          CheckpointError: It could not be written, or another process is saving to the folder; no
            other one was removed.
          ArgumentValueError: The number is none, or negative.

        Warns:
          RuntimeWarning: It replaces or removes a checkpoint of an earlier program, and this one
            has restored none of the folder's.

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
        number = (
            self.checkpoint.save_counter + 1
            if checkpoint_number is None
            else _whole_number("checkpoint_number", checkpoint_number)
        )
        path = self._folder / f"{self._name}-{number}"
        self.checkpoint.sync()
        _require_folder(self._folder)
        self._warn_of_loss(path)
        before = self.checkpoint.save_counter
        self.checkpoint.save_counter = before + 1
        try:
            written = self.checkpoint.write_within(
                path,
                self._options if options is None else options,
                lambda: self._adding(path),
            )
        except BaseException:
            self.checkpoint.save_counter = before
            raise
        self._last_step = step
        return written

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
        """Removes all its checkpoints, and what killed processes left of them.

        Raises:
          CheckpointError: Another process is saving to the folder.
        """
        self.sync()
        with files.alone(self._folder, self._name):
            for path in _whole(self._folder, self._name):
                files.remove(path)
            self._remove_unfinished()

    def _warn_of_loss(self, newest: Path) -> None:
        """Warns before the first checkpoint is lost that another program left in the folder."""
        if self._strange is None:
            known = self._folder in used_folders
            self._strange = set() if known else set(_whole(self._folder, self._name))
        if not self._strange or not is_writer():
            return
        lost = self._strange.intersection([newest, *self._old(newest)])
        if not lost:
            return
        self._strange = set()  # once is enough
        first = min(lost, key=lambda path: _number(path.name, self._name) or 0)
        warn(
            f"A program that starts again restores its checkpoints before it saves, and {first} "
            f"of an earlier one is {'replaced' if first == newest else 'removed'} now. Call "
            "restore_or_initialize() before the first save, or save to another folder.",
            RuntimeWarning,
        )

    @contextmanager
    def _adding(self, path: Path) -> Iterator[None]:
        """Removes what is not to be kept, before and after a checkpoint is written."""
        with files.alone(self._folder, self._name):
            self._remove_unfinished()
            yield
            for old in self._old(path):
                files.remove(old)

    def _remove_unfinished(self) -> None:
        files.remove_unfinished(self._folder, lambda name: _number(name, self._name) is not None)

    def _old(self, newest: Path) -> list[Path]:
        """Returns the checkpoints that are not to be kept, once a newer one is whole."""
        if self._max_to_keep is None:
            return []
        kept_ns, old = None, []
        older = [path for path in _whole(self._folder, self._name) if path != newest]
        for path in [*older, newest][: -int(self._max_to_keep)]:
            number = _number(path.name, self._name) or 0
            if self._every_number is not None and number % self._every_number == 0:
                continue
            if self._every_hours is not None:
                written_ns = files.time_of(path)
                least_ns = self._every_hours * _SECONDS_AN_HOUR * _NANOSECONDS
                if kept_ns is None or written_ns - kept_ns >= least_ns:
                    kept_ns = written_ns
                    continue
            old.append(path)
        return old


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
    folder = absolute(checkpoint_dir)
    _require_folder(folder)
    found = _whole(folder, None)
    return str(found[-1]) if found else None


def _whole(folder: Path, name: str | None) -> list[Path]:
    """Returns the whole checkpoints of a folder, the oldest first."""
    if not folder.exists():
        return []
    paths = [path for path in folder.iterdir() if _number(path.name, name) is not None]
    whole = [path for path in paths if files.is_checkpoint(path)]
    return sorted(whole, key=lambda path: (files.time_of(path), _number(path.name, name)))


def _number(folder: str, name: str | None) -> int | None:
    """Returns the number of a checkpoint; None for another name."""
    found = re.fullmatch(r"(.*)-(\d+)", folder)
    if found is None or (name is not None and found[1] != name):
        return None
    return int(found[2])


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


def _require_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, not a folder of checkpoints. Choose another.")
