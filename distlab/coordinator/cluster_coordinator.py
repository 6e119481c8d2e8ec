"""The coordinator that schedules functions on a ParameterServerStrategy's workers."""

from __future__ import annotations

import contextvars
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, final

import jax
import numpy as np

from distlab.coordinator._closure_log import ClosureLog
from distlab.coordinator._work_queue import WorkQueue
from distlab.coordinator.closures import Closure, call
from distlab.coordinator.per_worker import PerWorkerDataset, require_for_workers
from distlab.coordinator.remote_value import RemoteValue
from distlab.devices import jax_internals
from distlab.errors import ArgumentTypeError, ContextError
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.strategies.workers import current_worker
from distlab.text.shown import shown
from distlab.values.checks import checked_call, require_plain
from distlab.variables import server_traffic
from distlab.variables.server_traffic import WorkerTraffic

_STALL_SECONDS: Final = 600.0
_END_SECONDS: Final = 10.0
_made: weakref.WeakKeyDictionary[ParameterServerStrategy, weakref.ref[ClusterCoordinator]] = (
    weakref.WeakKeyDictionary()
)


@final
class ClusterCoordinator:
    """Schedules functions on workers (`tf.distribute.coordinator.ClusterCoordinator`).

    Each worker is a thread that runs one function after another, with the
    strategy in scope and on a device of its own. Workers do not wait for one
    another: training with them is asynchronous. They end when nothing refers
    to the coordinator any more.

    A strategy has one coordinator; making another returns the same one.

    Args:
      strategy: The strategy.
      stall_seconds: How long `join`, `fetch` and `schedule` wait while no
        function begins or ends, before they raise an error.

    Raises:
      ArgumentTypeError: `strategy` is not a ParameterServerStrategy.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2301"], "ps": ["b:2301"]})
      >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
      >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
      >>> strategy = dl.ParameterServerStrategy(resolver)
      >>> coordinator = dl.coordinator.ClusterCoordinator(strategy)
      >>> coordinator.fetch([coordinator.schedule(pow, (n, 2)) for n in range(4)])
      [0, 1, 4, 9]
    """

    def __new__(
        cls, strategy: ParameterServerStrategy, *, stall_seconds: float = _STALL_SECONDS
    ) -> ClusterCoordinator:
        """Returns the strategy's coordinator; makes it when there is none."""
        if not isinstance(strategy, ParameterServerStrategy):
            raise ArgumentTypeError(
                "A ClusterCoordinator needs a ParameterServerStrategy, on whose workers it "
                f"schedules functions, got a {type(strategy).__name__}. Other strategies need no "
                "coordinator: call run."
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
        self._tasks = strategy.tasks
        counts = strategy.num_workers, len(strategy.parameter_device_names)
        log = ClosureLog(strategy.number, *counts, processes=self._tasks is not None)
        self._queue = WorkQueue(stall_seconds, log)
        if self._tasks is not None:
            weakref.finalize(self, self._tasks.serve(self._queue))
            return
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
        """Schedules a function on the next free worker, and returns immediately.

        Args:
          fn: The function. It usually calls `strategy.run`.
          args: Its arguments. Of a per-worker value it receives its worker's part.
          kwargs: Its named arguments, likewise.

        Returns:
          The future result.

        Raises:
          ArgumentTypeError: `fn` is not a function, or an argument is a `RemoteValue`.
          ValueShapeError: `args` is no tuple or list, or `kwargs` no dict.
          ContextError: The caller is being traced.
          StructureError: It is a generator function or an async function, or a per-worker value
            has not a part for each worker.
          ClusterError: The queue is full, and no function began or ended in time.
          Exception: An earlier function raised it, and no call has raised it yet.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2302"], "ps": ["b:2302"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> strategy = dl.ParameterServerStrategy(resolver)
          >>> coordinator = dl.coordinator.ClusterCoordinator(strategy)
          >>> coordinator.schedule(strategy.run, args=(lambda x: 2.0 * x, (3,))).fetch().item()
          6.0
        """
        if not callable(fn):
            raise ArgumentTypeError(
                f"schedule needs a function, got {shown(fn)}. Pass the function itself, and its "
                "arguments as args=(...)."
            )
        require_plain(fn, "schedule")
        if jax_internals.being_staged():
            raise ContextError(
                "schedule was called in a function that is being traced, by run or by jax.jit, and "
                "would schedule its function now, but not at later calls. Call it outside."
            )
        given, named = checked_call("schedule", fn, () if args is None else args, kwargs)
        result = RemoteValue(self._queue.wait)
        put_at = time.monotonic()
        closure = Closure(fn, given, named, result, put_at=put_at)
        leaves = jax.tree.leaves((given, named))
        if any(isinstance(leaf, RemoteValue) for leaf in leaves):
            raise ArgumentTypeError(
                f"{closure.name} can't have a RemoteValue as an argument, as in TensorFlow. Call "
                "fetch() on it first."
            )
        for leaf in leaves:
            require_for_workers(leaf, self._strategy.num_workers)
        if self._tasks is None:
            if any(map(_is_written_to, leaves)):
                closure = closure._replace(
                    args=jax.tree.map(_own, given), kwargs=jax.tree.map(_own, named)
                )
        else:
            closure = closure._replace(sent=self._tasks.sent(fn, closure.args, closure.kwargs))
        self._queue.put(closure)
        return closure.result

    def join(self) -> None:
        """Waits until all functions ended.

        Raises:
          OutOfRangeError: A worker's dataset is exhausted.
          ContextError: A worker runs the calling function.
          ClusterError: No function began or ended in time.
          Exception: The first function to fail raised it; those that waited were
            cancelled.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2303"], "ps": ["b:2303"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
          >>> result = coordinator.schedule(pow, (2, 3))
          >>> coordinator.join()
          >>> result
          RemoteValue(ready)
        """
        if current_worker() is not None:
            raise ContextError(
                "join was called in a function that a worker runs, and would wait for that "
                "function itself. Call it outside, after schedule."
            )
        self._queue.join()

    def done(self) -> bool:
        """Returns whether all functions ended.

        Raises:
          Exception: The first function to fail raised it.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2304"], "ps": ["b:2304"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
          >>> coordinator.done()
          True
        """
        return self._queue.idle()

    def fetch(self, val: Any) -> Any:
        """Waits for results.

        Args:
          val: A nest of `RemoteValue`s.

        Returns:
          The nest with the results, their arrays as NumPy arrays.

        Raises:
          CancelledError: A function did not run, because another one failed.
          ClusterError: No function began or ended in time.
          ContextError: A worker runs the calling function, and a result is not there yet.
          Exception: A function raised it.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2305"], "ps": ["b:2305"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
          >>> coordinator.fetch({"eight": coordinator.schedule(pow, (2, 3))})
          {'eight': 8}
        """
        leaves, structure = jax.tree.flatten(val)
        return jax.tree.unflatten(
            structure,
            [leaf.fetch() if isinstance(leaf, RemoteValue) else leaf for leaf in leaves],
        )

    def create_per_worker_dataset(self, dataset_fn: Any) -> PerWorkerDataset:
        """Makes a dataset for each worker.

        As in TensorFlow nothing is sharded: each worker reads the whole dataset,
        unless the function shards or shuffles it by the worker's number.

        Args:
          dataset_fn: A function without arguments that returns a dataset, plain or
            distributed, and is called for each worker. Or a dataset.

        Returns:
          An iterable. Its `iter()` is an argument for `schedule`, of which each
          function receives its worker's iterator.

        Raises:
          StructureError: `dataset_fn` is something else; `join` raises it where it returns that.

        Example:
          >>> import distlab as dl
          >>> cluster = dl.ClusterSpec({"worker": ["a:2306"], "ps": ["b:2306"]})
          >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
          >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
          >>> coordinator = dl.coordinator.ClusterCoordinator(dl.ParameterServerStrategy(resolver))
          >>> dataset = coordinator.create_per_worker_dataset(lambda: dl.data.Dataset.range(3))
          >>> int(coordinator.schedule(sum, (iter(dataset),)).fetch())
          3
        """
        return PerWorkerDataset(dataset_fn)

    def __repr__(self) -> str:
        """Returns the strategy's name."""
        return f"ClusterCoordinator({self._strategy!r})"


def experimental_get_current_worker_index() -> int:
    """Returns the number of the worker that runs the calling function, from 0.

    A scheduled function or a dataset function calls it to shard data by worker.

    Raises:
      ContextError: The calling thread is not a worker's.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2201"], "ps": ["b:2201"]})
      >>> servers = [dl.Server(cluster, job_name=job) for job in cluster.jobs]
      >>> resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
      >>> strategy = dl.ParameterServerStrategy(resolver)
      >>> coordinator = dl.coordinator.ClusterCoordinator(strategy)
      >>> coordinator.schedule(dl.coordinator.experimental_get_current_worker_index).fetch()
      0
    """
    worker = current_worker()
    if worker is None:
        raise ContextError(
            "experimental_get_current_worker_index must be called by a function that a worker "
            "runs, and this thread is no worker's. Call it inside a function that "
            "ClusterCoordinator.schedule runs."
        )
    return worker


def _is_written_to(leaf: Any) -> bool:
    """Returns whether the program may fill an array again before its function begins."""
    return isinstance(leaf, np.ndarray) and leaf.flags.writeable


def _own(leaf: Any) -> Any:
    return leaf.copy() if _is_written_to(leaf) else leaf


def _work(worker: int, strategy: ParameterServerStrategy, queue: WorkQueue) -> None:
    """Runs a worker's thread, which must not refer to the coordinator, and so keep it alive."""
    with strategy.as_worker(worker):
        traffic = WorkerTraffic()
        server_traffic.of_this_thread.set(traffic)
        while (closure := queue.take(worker)) is not None:
            error = _run(closure, worker)
            queue.finished(closure, error, traffic.take())
            del closure, error


def _run(closure: Closure, worker: int) -> BaseException | None:
    """Runs a function and sets its result, before the queue records that it ended."""
    try:
        closure.result.set(call(closure.fn, closure.args, closure.kwargs, worker))
    except BaseException as error:  # noqa: BLE001 - join and fetch raise it
        closure.result.fail(error)
        return error
    return None


def _end(queue: WorkQueue, threads: list[threading.Thread]) -> None:
    queue.close()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(_END_SECONDS)
