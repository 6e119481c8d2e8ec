"""Closures of a coordinator's queue, run by workers in other processes."""

from __future__ import annotations

import asyncio
from typing import Any, Final, final

from distributed.core import ConnectionPool

from distlab.coordinator._work_queue import Closure, WorkQueue
from distlab.errors import ClusterError, ServerLostError
from distlab.integrations.dask import references
from distlab.integrations.dask.closures_sent import ClosuresSent, Sent
from distlab.integrations.dask.members import Membership, Task
from distlab.integrations.dask.messages import UNKNOWN, Frames, sendable
from distlab.integrations.dask.pickling import loaded
from distlab.integrations.dask.versions import require_same

_OPEN_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.05
_MOST_REPORTS: Final = 3
"""How often workers may report a server lost that Dask says is there, as in TensorFlow."""


@final
class Dispatch:
    """Gives each worker one closure after another. It runs in the client's event loop.

    Args:
      session: The session's name.
      pool: The connections to workers.
      members: Who is where.
      closures: What is pickled.
      about: What a worker has to know of the session.
    """

    def __init__(
        self,
        session: str,
        pool: ConnectionPool,
        members: Membership,
        closures: ClosuresSent,
        about: dict[str, Any],
    ) -> None:
        self._session = session
        self._pool = pool
        self._members = members
        self._closures = closures
        self._about = about
        self._known: dict[str, tuple[set[int], set[int]]] = {}
        self._calls: dict[Task, asyncio.Task[Any]] = {}
        self._reports = 0
        self._lost: ClusterError | None = None  # why all closures fail
        self._waits: set[asyncio.Event] = set()
        members.on_lost(self._worker_lost)

    async def run(self, queue: WorkQueue, workers: int) -> None:
        """Runs what the queue holds, until it is closed.

        Args:
          queue: The queue.
          workers: The number of workers.
        """
        serving = [self._serve(queue, Task("worker", n)) for n in range(workers)]
        try:
            await asyncio.gather(self._fail_all(queue), *serving)
        except Exception as error:  # noqa: BLE001 - or those who wait would wait for ever
            self.fail(ClusterError(f"Functions are no longer given to workers: {error!r}"))
            await self._fail_all(queue)

    def fail(self, error: ClusterError) -> None:
        """Fails all closures from now on, and those that run, as a server is lost."""
        self._lost = self._lost or error
        for call in self._calls.values():
            call.cancel()
        self.wake()

    def wake(self) -> None:
        """Tells idle workers that the queue has another closure, or is closed."""
        for event in self._waits:
            event.set()

    async def _serve(self, queue: WorkQueue, task: Task) -> None:
        wake = asyncio.Event()
        self._waits.add(wake)
        await self._present(queue, task)  # a worker begins to load JAX before its first closure
        while not queue.closed and self._lost is None:
            wake.clear()
            if not queue.waits:
                await wake.wait()
                continue
            address = await self._present(queue, task)
            closure = queue.take_now(task.index) if address is not None else None
            if closure is not None and address is not None:
                await self._run(queue, task, address, closure)

    async def _fail_all(self, queue: WorkQueue) -> None:
        """Fails what is scheduled once a server is lost."""
        wake = asyncio.Event()
        self._waits.add(wake)
        nobody = Task("worker", -1)
        while not queue.closed:
            wake.clear()
            if self._lost is None or not queue.waits:
                await wake.wait()
                continue
            closure = queue.take_now(nobody.index)
            if closure is not None:
                _end(queue, nobody, closure, self._lost)

    async def _present(self, queue: WorkQueue, task: Task) -> str | None:
        """Returns the address of a worker that has the session, once it is there."""
        address = await self._members.present(task)
        if address in self._known:
            return address
        try:
            await self.open(task, address)
        except OSError:
            self._members.lose(task, address)
            return None
        except ClusterError as error:
            queue.warn(f"{task} is not used: {error}", RuntimeWarning)
            self._members.lose(task, address)
            return None
        return address

    async def open(self, task: Task, address: str) -> None:
        """Begins the session in a worker.

        Raises:
          ClusterError: It has no handlers of distlab, or other versions than this process.
        """
        require_same(await asked(self._pool, address, "distlab_versions"), f"{task} at {address}")
        await asked(
            self._pool, address, "distlab_open", session=self._session, number=task.index,
            **self._about,
        )  # fmt: skip
        self._known[address] = (set(), set())

    async def _run(self, queue: WorkQueue, task: Task, address: str, closure: Closure) -> None:
        call = asyncio.ensure_future(self._call(address, closure.sent))
        self._calls[task] = call
        try:
            answer = await call
        except (OSError, asyncio.CancelledError):
            if queue.closed:
                raise
            if self._lost is None:
                self._known.pop(address, None)
                self._members.lose(task, address)
                self._put_back(queue, task)
            else:
                _end(queue, task, closure, self._lost)
            return
        except Exception as error:  # noqa: BLE001 - Dask's own, such as a message it can't read
            _end(queue, task, closure, error)
            return
        finally:
            self._calls.pop(task, None)
        if answer == UNKNOWN:
            self._known.pop(address, None)
            self._put_back(queue, task)
        elif "lost" in answer:
            await self._server_lost(queue, task, closure, answer)
        elif "error" in answer:
            self._note(queue, closure, answer)
            _end(queue, task, closure, loaded(answer["error"]))
        else:
            self._note(queue, closure, answer)
            closure.result.set_sent(_Loaded(answer["result"]))
            queue.finished(task.index)

    def _note(self, queue: WorkQueue, closure: Closure, answer: Any) -> None:
        """Does to captured lists what a closure did, one that failed as well."""
        if "changes" in answer:
            appended, others = loaded(answer["changes"])
            told = self._closures.note(closure.sent.function, appended, others)
            if told is not None:
                queue.warn(told)

    async def _call(self, address: str, sent: Sent) -> Any:
        functions, resources = self._known[address]
        new = [] if sent.function.number in functions else [sent.function]
        needed = [*sent.resources, *(number for fn in new for number in fn.resources)]
        missing = [number for number in needed if number not in resources]
        forget = list(functions - self._closures.kept()) if new else []
        answer = await self._pool(address).distlab_run(
            session=self._session,
            fn=sent.function.number,
            args=None if sent.args is None else sendable(sent.args),
            functions=[(fn.number, sendable(fn.frames)) for fn in new],
            resources=[(n, sendable(self._closures.resources[n])) for n in missing],
            forget=forget,
        )
        if answer != UNKNOWN:
            functions.update(fn.number for fn in new)
            functions.difference_update(forget)
            resources.update(missing)
        return answer

    async def _server_lost(
        self, queue: WorkQueue, task: Task, closure: Closure, answer: Any
    ) -> None:
        """Takes a worker's report for transient, unless a server is lost or it comes again."""
        self._reports += 1
        if self._reports < _MOST_REPORTS and self._lost is None:
            await asyncio.sleep(_RETRY_SECONDS)
            self._put_back(queue, task)
        else:
            self._note(queue, closure, answer)
            _end(queue, task, closure, self._lost or ServerLostError(answer["lost"]))

    def _put_back(self, queue: WorkQueue, task: Task) -> None:
        queue.put_back(task.index)
        self.wake()

    def _worker_lost(self, task: Task) -> None:
        call = self._calls.get(task)
        if call is not None:
            call.cancel()


def _end(queue: WorkQueue, task: Task, closure: Closure, error: BaseException) -> None:
    closure.result.fail(error)
    queue.finished(task.index, error)


async def asked(pool: ConnectionPool, address: str, verb: str, **about: Any) -> Any:
    """Calls a handler of the plugin, which a new process may not have yet."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _OPEN_SECONDS
    while (answer := await getattr(pool(address), verb)(**about)) is None:
        if loop.time() > end:
            raise ClusterError(
                f"The Dask worker at {address} has no handlers of distlab after "
                f"{_OPEN_SECONDS:g} s. Install distlab there, in the same version."
            )
        await asyncio.sleep(_RETRY_SECONDS)
    return answer


class _Loaded:
    """Loads a result when it is asked for: most are not."""

    def __init__(self, frames: Frames | None) -> None:
        self._frames = frames

    def __call__(self, as_numpy: bool) -> Any:
        """Returns the result."""
        if self._frames is None:
            return None
        if not as_numpy:
            return loaded(self._frames)
        with references.arrays_as_numpy():
            return loaded(self._frames)
