"""Own training loops that go on where they were interrupted."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import final

from distlab.errors import ArgumentValueError, ContextError
from distlab.integrations.orbax.checkpoint import Checkpoint
from distlab.integrations.orbax.manager import CheckpointManager
from distlab.integrations.orbax.preemption import RESTART_CODE
from distlab.integrations.orbax.workers import is_writer
from distlab.processes import group
from distlab.processes.preemption import StopPoint
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown


@final
class BackupAndRestore:
    """Saves a loop's state every few steps, and restores it when the program restarts.

    Entering the `with` block restores the newest backup, if an earlier run was interrupted;
    leaving it without an exception removes the backups. With the iterator in the checkpoint, the
    loop resumes at the next batch, on any number of replicas. It has the name and the
    arguments of Keras' callback, for loops of your own.

    Args:
      checkpoint: What to save: variables, the iterator, counters.
      backup_dir: A folder for the backups alone.
      save_freq: The number of steps from one backup to the next.
      delete_checkpoint: Whether to remove the backups when the block is left without an exception.
      save_before_preemption: Whether SIGTERM on any worker has all of them save after the same step
        and end, by `sys.exit(42)`, so that the program may be started again.
      enable_async: Whether a thread writes.

    Attributes:
      restored: The path of the backup that was restored; None where there was none.

    Raises:
      ArgumentValueError: `save_freq` is no positive whole number.
      CheckpointError: The folder is a file.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     total = dl.Variable(0, aggregation=dl.VariableAggregation.SUM)
      >>> batches = strategy.experimental_distribute_dataset(dl.data.Dataset.range(8).batch(2))
      >>> def train(fail_at: int) -> None:
      ...     iterator = iter(batches)
      ...     checkpoint = dl.train.Checkpoint(total=total, iterator=iterator)
      ...     with dl.BackupAndRestore(checkpoint, "backup") as backup:
      ...         for x in iterator:
      ...             if fail_at in x.values[0]:
      ...                 raise KeyboardInterrupt
      ...             strategy.run(lambda x: total.assign_add(x.sum()), args=(x,))
      ...             backup.step()
      >>> try:
      ...     train(fail_at=4)
      ... except KeyboardInterrupt:
      ...     _ = total.assign(0)  # as in a new process
      >>> train(fail_at=-1)
      >>> int(total)
      28
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        backup_dir: str | os.PathLike[str],
        save_freq: int = 1,
        delete_checkpoint: bool = True,
        save_before_preemption: bool = False,
        *,
        enable_async: bool = False,
    ) -> None:
        if not is_positive_count(save_freq):
            raise ArgumentValueError(
                f"save_freq must be a positive number of steps, got {shown(save_freq)}. Write "
                "for example save_freq=100; Keras' 'epoch' has no meaning for a loop of your own."
            )
        self.restored: str | None = None
        self._manager = CheckpointManager(
            checkpoint,
            backup_dir,
            max_to_keep=1,
            checkpoint_name="backup",
            enable_async=enable_async,
        )
        self._save_freq = save_freq
        self._delete = delete_checkpoint
        self._before_preemption = save_before_preemption
        self._stop: StopPoint | None = None
        self._steps = 0
        self._entered = False

    def __enter__(self) -> BackupAndRestore:
        """Restores the newest backup."""
        self.restored = self._manager.restore_latest()
        self._steps, self._entered = 0, True
        if self._before_preemption:
            self._stop = StopPoint(group.current(), None, begun=1)
        return self

    def step(self) -> None:
        """Counts a step, after it was applied, and saves when it is time.

        With `save_before_preemption` it ends the process when one is to be taken away.

        Raises:
          CheckpointError: The backup could not be written; the one before is as it was.
          ContextError: This is outside of the `with` block.
        """
        if not self._entered:
            raise ContextError(
                "BackupAndRestore.step was called outside of its with block, where nothing is "
                "restored. Write: with BackupAndRestore(...) as backup."
            )
        self._steps += 1
        stops = self._stop is not None and self._stop.begin()
        if stops or self._steps % self._save_freq == 0:
            self.save()
        if stops:
            self._manager.sync()
            sys.exit(RESTART_CODE)

    def save(self) -> None:
        """Saves now, as before a machine is taken away; raises what `step` does."""
        self._manager.save()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Removes the backups, unless the block raised."""
        self._entered = False
        if self._stop is not None:
            self._stop.close()
            self._stop = None
        self._manager.sync()
        if kind is None and self._delete and is_writer():
            self._manager.remove_all()
