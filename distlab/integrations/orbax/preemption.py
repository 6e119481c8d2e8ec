"""Training that saves, on all workers at one step, before a machine is taken away."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, final

from distlab.cluster.resolver import ClusterResolver
from distlab.errors import ArgumentTypeError, ArgumentValueError, UnsupportedError
from distlab.integrations.orbax import files
from distlab.integrations.orbax.checkpoint import Checkpoint
from distlab.integrations.orbax.manager import CheckpointManager
from distlab.processes import group
from distlab.processes.preemption import StopPoint
from distlab.text.shown import shown

RESTART_CODE: Final = 42
"""The exit code after a checkpoint was saved, TensorFlow's: the program is to be started again."""

_COUNTER: Final = "checkpointed_runs"
_SPARE_STEPS: Final = 6
"""The last save comes so many steps before the end of the grace period, as in TensorFlow."""
_SPARE_SAVES: Final = 2
_LEAST_STEP_SECONDS: Final = 1e-3

Result = TypeVar("Result")


@final
class TerminationConfig:
    """Configuration of a worker's preemption: its notice, and its end (`tf.distribute`'s).

    Args:
      termination_watcher_fn: Returns True once the worker is to be taken away. A thread calls it
        once a second, so it must return at once. None watches for SIGTERM.
      exit_fn: What is called after the checkpoint was saved; None ends the process by
        `sys.exit(42)`, so that it may be started again.
      grace_period: The seconds from the notice to the end. With 0 or None all workers save after
        the step that the furthest one is in, and end. With more they save, train on, and save
        again shortly before the end.
      save_fn: What is called to save, instead of the manager's `save`.

    Attributes:
      termination_watcher_fn: Returns True once the worker is to be taken away.
      exit_fn: What is called after the checkpoint was saved.
      grace_period: The seconds from the notice to the end.
      save_fn: What is called to save.

    Example:
      >>> import sys
      >>> import distlab as dl
      >>> config = dl.experimental.TerminationConfig(exit_fn=lambda: sys.exit(3))
      >>> config.grace_period is None
      True
    """

    def __init__(
        self,
        termination_watcher_fn: Callable[[], bool] | None = None,
        exit_fn: Callable[[], Any] | None = None,
        grace_period: float | None = None,
        save_fn: Callable[..., Any] | None = None,
    ) -> None:
        self.termination_watcher_fn = termination_watcher_fn
        self.exit_fn = exit_fn
        self.grace_period = grace_period
        self.save_fn = save_fn


@final
class PreemptionCheckpointHandler:
    """Saves on all workers when one is to be taken away (`tf.distribute`'s class of that name).

    When it is made, the newest checkpoint is restored. When a worker then receives SIGTERM, all
    of them save after the same step, the one that the furthest of them is in, and end. Started
    again, they go on there.

    All workers make it, and call `run` for the same steps. It also works in one process.

    Args:
      cluster_resolver: The strategy's `cluster_resolver`; None for a program without a cluster.
      checkpoint_or_checkpoint_manager: What to save, or the manager that saves it. The number of
        runs is saved with it, as `checkpointed_runs`.
      checkpoint_dir: The folder, where a `Checkpoint` is given.
      termination_config: A `TerminationConfig`; the default one for None.

    Raises:
      ArgumentTypeError: There is neither a checkpoint nor a manager.
      ArgumentValueError: A `Checkpoint` is given without a folder.
      UnsupportedError: The cluster has parameter servers.
      ContextError: It is made in another thread than the main one, which alone hears of signals.
      CheckpointMismatchError: The newest checkpoint is one of other objects.

    Example:
      >>> import os
      >>> import signal
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     total = dl.Variable(0, aggregation=dl.VariableAggregation.ONLY_FIRST_REPLICA)
      >>> def train() -> int:
      ...     config = dl.experimental.TerminationConfig(exit_fn=lambda: None)  # for the example
      ...     handler = dl.experimental.PreemptionCheckpointHandler(
      ...         None, dl.train.Checkpoint(total=total), "preempted", config
      ...     )
      ...     restored = handler.total_run_calls
      ...     for step in range(restored, 4):
      ...         handler.run(strategy.run, lambda: total.assign_add(1))
      ...         if step == 1:
      ...             os.kill(os.getpid(), signal.SIGTERM)
      ...     return restored
      >>> train()
      0
      >>> train(), int(total)
      (2, 4)
    """

    def __init__(
        self,
        cluster_resolver: ClusterResolver | None,
        checkpoint_or_checkpoint_manager: Checkpoint | CheckpointManager,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        termination_config: TerminationConfig | None = None,
    ) -> None:
        if cluster_resolver is not None and "ps" in cluster_resolver.cluster_spec().jobs:
            raise UnsupportedError(
                "PreemptionCheckpointHandler is for workers that take each step together, as in "
                "TensorFlow, and this cluster has parameter servers. Save in the coordinator."
            )
        self._manager = _manager_of(checkpoint_or_checkpoint_manager, checkpoint_dir)
        self._config = termination_config or TerminationConfig()
        self._runs = _restored_runs(self._manager)
        self._measured = time.monotonic(), self._runs
        self._stop: StopPoint | None = StopPoint(
            group.current(), self._config.termination_watcher_fn, begun=self._runs
        )
        self._until: float | None = None

    @property
    def total_run_calls(self) -> int:
        """The number of calls of `run`, those before a restart included.

        Loops begin with it, because the calls before are not made again.
        """
        return self._runs

    def run(
        self, distributed_train_function: Callable[..., Result], *args: Any, **kwargs: Any
    ) -> Result:
        """Saves and ends if all workers have agreed to, here; then calls a function.

        Args:
          distributed_train_function: Takes one step, on all replicas.
          *args: Its arguments.
          **kwargs: Its named arguments.

        Returns:
          The function's result.

        Raises:
          CheckpointError: The checkpoint could not be written.
        """
        self._begin()
        try:
            result = distributed_train_function(*args, **kwargs)
        except BaseException:
            if self._stop is not None:
                self._stop.undo()
            raise
        self._runs += 1
        return result

    def save_checkpoint_if_preempted(self, *args: Any, **kwargs: Any) -> None:
        """Saves and ends if all workers have agreed to, here. It takes the place of `run`.

        Call it once after each step.

        Args:
          *args: Arguments of `CheckpointManager.save`.
          **kwargs: Named arguments, likewise.

        Raises:
          CheckpointError: The checkpoint could not be written.
        """
        self._runs += 1
        self._begin(*args, **kwargs)

    @contextlib.contextmanager
    def watch_preemption_scope(self) -> Iterator[None]:
        """Returns a context manager that does nothing: `run` does all that is needed.

        TensorFlow needs it on TPUs.
        """
        yield

    def _begin(self, *args: Any, **kwargs: Any) -> None:
        """Begins a step, after saving and ending if it is time to."""
        while self._stop is not None and self._stop.begin():
            self._save(*args, **kwargs)

    def _save(self, *args: Any, **kwargs: Any) -> None:
        assert self._stop is not None
        grace = self._config.grace_period
        if self._until is not None and self._train_on():
            return
        began = time.monotonic()
        self._manager.checkpoint.checkpointed_runs = self._runs
        if self._config.save_fn is not None:
            self._config.save_fn(*args, **kwargs)
        elif args or kwargs:
            self._manager.save(*args, **kwargs)
        else:
            self._manager.save(check_interval=False)
        self._manager.sync()
        if grace and self._until is None:
            self._until = began + grace - _SPARE_SAVES * (time.monotonic() - began)
            self._train_on()
            return
        self._stop.close()
        self._stop = None
        exit_now = self._config.exit_fn or partial(sys.exit, RESTART_CODE)
        exit_now()

    def _train_on(self) -> bool:
        """Goes on for half of the steps for which the grace period has time; False for none."""
        assert self._stop is not None
        assert self._until is not None
        now, (since, runs) = time.monotonic(), self._measured
        self._measured = now, self._runs
        each = max(_LEAST_STEP_SECONDS, (now - since) / max(1, self._runs - runs))
        left = self._until - now - _SPARE_STEPS * each
        return self._stop.go_on(max(0, int(left / each / 2))) > 0


def _manager_of(
    checkpoint: Checkpoint | CheckpointManager, folder: str | os.PathLike[str] | None
) -> CheckpointManager:
    if isinstance(checkpoint, CheckpointManager):
        return checkpoint
    if not isinstance(checkpoint, Checkpoint):
        raise ArgumentTypeError(
            "checkpoint_or_checkpoint_manager must be a dl.train.Checkpoint or CheckpointManager, "
            f"got {shown(checkpoint)}. Write dl.train.Checkpoint(model=..., optimizer=...)."
        )
    if not folder:
        raise ArgumentValueError(
            "A Checkpoint needs the folder where it is saved. Give checkpoint_dir, or a "
            "dl.train.CheckpointManager instead of the Checkpoint."
        )
    return CheckpointManager(checkpoint, folder, max_to_keep=1)


def _restored_runs(manager: CheckpointManager) -> int:
    """Restores the newest checkpoint, and returns the number of runs that it was saved after."""
    checkpoint, path = manager.checkpoint, manager.latest_checkpoint
    if path is None or _COUNTER in files.entries(Path(path)):
        checkpoint.checkpointed_runs = 0
    manager.restore_or_initialize()
    if _COUNTER not in checkpoint.checkpoint_parts:
        checkpoint.checkpointed_runs = 0  # the checkpoint was saved without this handler
    return int(checkpoint.checkpointed_runs)
