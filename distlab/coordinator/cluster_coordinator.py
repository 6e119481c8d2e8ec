"""ClusterCoordinator: hands functions to the workers of a ParameterServerStrategy."""

from __future__ import annotations

import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, final

import jax

from distlab.coordinator._work_queue import Closure, WorkQueue
from distlab.coordinator.per_worker import PerWorkerDataset, part_of
from distlab.coordinator.remote_value import RemoteValue
from distlab.errors import ArgumentTypeError, ArgumentValueError, OutOfRangeError
from distlab.strategies.parameter_server import ParameterServerStrategy

_STALL_SECONDS: Final = 600.0
_END_SECONDS: Final = 10.0
_made: weakref.WeakKeyDictionary[ParameterServerStrategy, weakref.ref[ClusterCoordinator]] = (
    weakref.WeakKeyDictionary()
)


@final
class ClusterCoordinator:
    """Hands functions to workers (`tf.distribute.coordinator.ClusterCoordinator`).

    Each worker is a thread that runs one function after another, with the
    strategy in scope and on a device of its own. Workers do not wait for one
    another: training with them is asynchronous. They end when nothing refers
    to the coordinator any more.

    A strategy has one coordinator; making another one gives the same.

    Args:
      strategy: the strategy.
      stall_seconds: how long `join`, `fetch` and `schedule` wait while no
        function begins or ends; then they raise.

    Raises:
      ArgumentTypeError: it is no ParameterServerStrategy.
      ArgumentValueError: `stall_seconds` is not positive.
    """

    def __new__(
        cls, strategy: ParameterServerStrategy, *, stall_seconds: float = _STALL_SECONDS
    ) -> ClusterCoordinator:
        """Returns the strategy's coordinator; makes it when there is none."""
        if not isinstance(strategy, ParameterServerStrategy):
            raise ArgumentTypeError(
                "A ClusterCoordinator hands functions to the workers of a ParameterServerStrategy, "
                f"got a {type(strategy).__name__}. Other strategies need none: call run."
            )
        if not stall_seconds > 0:
            raise ArgumentValueError(
                f"stall_seconds must be more than 0, got {stall_seconds!r}. Leave it out for "
                f"{_STALL_SECONDS:g}."
            )
        known = _made.get(strategy)
        coordinator = None if known is None else known()
        if coordinator is None:
            coordinator = super().__new__(cls)
            coordinator._start(strategy, stall_seconds)
            _made[strategy] = weakref.ref(coordinator)
        return coordinator

    def _start(self, strategy: ParameterServerStrategy, stall_seconds: float) -> None:
        self._strategy = strategy
        self._queue = WorkQueue(stall_seconds)
        threads = [
            threading.Thread(
                target=contextvars.Context().run,
                args=(_work, worker, strategy, self._queue),
                name=f"distlab-worker-{worker}",
                daemon=True,
            )
            for worker in range(strategy.num_workers)
        ]
        weakref.finalize(self, _end, self._queue, threads)
        for thread in threads:
            thread.start()

    @property
    def strategy(self) -> ParameterServerStrategy:
        """The strategy whose workers run the functions."""
        return self._strategy

    def schedule(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] | list[Any] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> RemoteValue:
        """Lets the next free worker run a function; returns at once.

        Args:
          fn: the function. It usually calls `strategy.run`.
          args: its arguments. Of what is per worker it gets its worker's part.
          kwargs: its named arguments, likewise.

        Returns:
          Its result, which will be there.

        Raises:
          ArgumentTypeError: `fn` is no function, or an argument is a result
            that is not there yet.
          ClusterError: too many functions wait, and no worker gets on.
          Exception: that of an earlier function, whose error was not seen yet.
        """
        if not callable(fn):
            raise ArgumentTypeError(f"schedule needs a function, got {fn!r:.80}.")
        closure = Closure(fn, tuple(args or ()), dict(kwargs or {}), RemoteValue(self._queue.wait))
        if any(isinstance(leaf, RemoteValue) for leaf in jax.tree.leaves(closure[1:3])):
            raise ArgumentTypeError(
                f"{closure.name} was given a RemoteValue, as in TensorFlow that can't be an "
                "argument. Call fetch() on it first."
            )
        self._queue.put(closure)
        return closure.result

    def join(self) -> None:
        """Waits until all functions ended.

        Raises:
          OutOfRangeError: a worker's dataset came to its end.
          ClusterError: no worker got on for too long.
          Exception: what the first function to fail raised; those that waited
            are cancelled.
        """
        self._queue.join()

    def done(self) -> bool:
        """Says whether all functions ended; raises as `join` does."""
        return self._queue.idle()

    def fetch(self, val: Any) -> Any:
        """Waits for results.

        Args:
          val: a nest of what `schedule` returned.

        Returns:
          The nest with the results, their arrays as NumPy's.
        """
        return jax.tree.map(
            lambda leaf: leaf.fetch() if isinstance(leaf, RemoteValue) else leaf, val
        )

    def create_per_worker_dataset(self, dataset_fn: Any) -> PerWorkerDataset:
        """Makes a dataset for each worker.

        As in TensorFlow nothing is sharded: each worker reads all of it, so
        shuffle with a seed of its own, or let the function decide.

        Args:
          dataset_fn: a function without arguments that returns a dataset, also
            a distributed one; it is called for each worker. Or a dataset.

        Returns:
          What `iter()` makes an argument for `schedule` of.
        """
        datasets = []
        for worker in range(self._strategy.num_workers):
            with self._strategy.as_worker(worker):
                datasets.append(dataset_fn() if callable(dataset_fn) else dataset_fn)
        return PerWorkerDataset(datasets, self._strategy.as_worker)

    def __repr__(self) -> str:
        """Names the strategy."""
        return f"ClusterCoordinator({self._strategy!r})"


def _work(worker: int, strategy: ParameterServerStrategy, queue: WorkQueue) -> None:
    """What a worker's thread does. It does not refer to the coordinator, which ends it."""
    with strategy.as_worker(worker):
        while (closure := queue.take(worker)) is not None:
            queue.finished(worker, _run(closure, worker))
            del closure


def _run(closure: Closure, worker: int) -> BaseException | None:
    """Runs a function; its result is there before it counts as ended."""
    try:
        args, kwargs = part_of(worker, (closure.args, closure.kwargs))
        closure.result.set(closure.fn(*args, **kwargs))
    except StopIteration:
        error: BaseException = OutOfRangeError(
            f"{closure.name} asked for more batches than worker {worker} has. Schedule as many "
            "steps as there are batches, or repeat() the dataset."
        )
    except BaseException as raised:  # noqa: BLE001 - join and fetch raise it
        error = raised
    else:
        return None
    closure.result.fail(error)
    return error


def _end(queue: WorkQueue, threads: list[threading.Thread]) -> None:
    queue.close()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(_END_SECONDS)
