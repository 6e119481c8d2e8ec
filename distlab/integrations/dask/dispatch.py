"""Closures of a coordinator's queue, given to workers in other processes; short ones together."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final, final

from distributed.core import ConnectionPool
from distributed.protocol.serialize import ToPickle

from distlab.coordinator._work_queue import WorkQueue
from distlab.coordinator.closures import Closure
from distlab.errors import ClusterError
from distlab.integrations.dask.closures import ClosuresSent
from distlab.integrations.dask.handlers import NO_SESSION
from distlab.integrations.dask.members import CLOSED, Members, Presence, Task, why_lost
from distlab.integrations.dask.pickling import Frames, loaded

_NOBODY: Final = -1
_MOST_TOGETHER: Final = 16
_SECONDS_TOGETHER: Final = 0.02
"""Closures of one message take about that long, so that no worker waits for another's."""

_BYTES_TOGETHER: Final = 4 << 20


@final
class Dispatch:
    """Gives each worker one message of closures after another, in the connections' event loop.

    `idle` workers wait for `wake`.
    """

    def __init__(
        self,
        session: str,
        pool: ConnectionPool,
        members: Members,
        closures: ClosuresSent,
        about: Mapping[str, Any],
    ) -> None:
        self._session = session
        self._pool = pool
        self._members = members
        self._closures = closures
        self._about = dict(about)
        self._queue: WorkQueue | None = None
        self._known: dict[Task, Presence] = {}  # the workers with the session
        self._put = asyncio.Event()
        self._away: set[Task] = set()
        self._seconds: dict[int, float] = {}  # that each function took the last time
        self._lost: ClusterError | None = None  # the error of all closures
        self._loss: asyncio.Future[None] | None = None  # done when there is one
        self.idle = 0

    async def run(self, queue: WorkQueue, workers: int) -> None:
        """Runs what the queue holds, until it is closed."""
        self._queue = queue
        self._loss = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                for n in range(workers):
                    group.create_task(self._serve(queue, Task("worker", n)))
        except Exception as error:  # noqa: BLE001 - or those who wait would never end
            self.fail(ClusterError(f"Functions are no longer given to workers: {error!r}"))
        while closures := await self._next(queue, None):
            self._end_lost(queue, closures)

    def fail(self, error: ClusterError) -> None:
        """Fails all closures from now on, and those that run, as a server is lost."""
        self._lost = self._lost or error
        if self._loss is not None and not self._loss.done():
            self._loss.set_result(None)
        self.wake()

    def wake(self) -> None:
        """Has idle workers look at the queue."""
        self._put.set()

    async def _next(self, queue: WorkQueue, task: Task | None) -> list[Closure]:
        """Waits for closures; none when the queue is closed, or a worker gets no more."""
        worker = _NOBODY if task is None else task.index
        while not queue.closed and (task is None or (task in self._known and not self._lost)):
            self.idle += 1  # before the look: whoever puts one afterwards sees it, and wakes
            self._put.clear()
            try:
                closure = queue.take_now(worker)
                if closure is not None:
                    return [closure, *self._more(queue, worker, closure)]
                await self._put.wait()
            finally:
                self.idle -= 1
        return []

    def _more(self, queue: WorkQueue, worker: int, closure: Closure) -> Iterator[Closure]:
        """Takes short closures of the same function that wait, and leaves others their part."""
        function = closure.sent.function.number
        seconds = max(self._seconds.get(function, math.inf), 1e-6)
        size = max(closure.sent.nbytes, 1)
        most = min(_SECONDS_TOGETHER / seconds, _BYTES_TOGETHER / size, _MOST_TOGETHER)
        for _ in range(min(int(most), len(queue) // self._about["workers"]) - 1):
            more = queue.take_now(worker, lambda one: one.sent.function.number == function)
            if more is None:
                return
            yield more

    async def _serve(self, queue: WorkQueue, task: Task) -> None:
        while not queue.closed and self._lost is None:
            if task not in self._known and not await self._open(task):
                continue
            closures = await self._next(queue, task)
            if closures:
                await self._run(queue, task, self._known[task], closures)

    async def _open(self, task: Task) -> bool:
        """Waits for a worker, begins the session there, and returns whether it can be used."""
        place: Presence | None = await self._unless_lost(self._members.present(task))
        if place is None:
            return False
        about = ToPickle({**self._about, "number": task.index})
        try:
            await self._pool(place.address).distlab_open(session=self._session, about=about)
        except OSError:
            self._members.lose(task, place, CLOSED)
            return False
        self._known[task] = place
        if task in self._away:
            self._away.discard(task)
            if self._queue is not None:
                self._queue.note_task(task.job, task.index, "returned")
        return True

    async def _run(
        self, queue: WorkQueue, task: Task, place: Presence, closures: list[Closure]
    ) -> None:
        recipes: dict[int, Frames] = {}
        while closures:
            answer = await self._answer(queue, task, place, closures, recipes)
            if answer is None:
                return
            answers, lacking = answer
            for closure, one in zip(closures, answers, strict=False):
                self._settle(queue, closure, one)
            if lacking is not None:
                recipes = {lacking: self._closures.recipe(closures[0].sent.function, lacking)}
            closures = closures[len(answers) :]

    async def _answer(
        self,
        queue: WorkQueue,
        task: Task,
        place: Presence,
        closures: list[Closure],
        recipes: dict[int, Frames],
    ) -> Any:
        """Returns a worker's answer; None where the closures failed, or will run elsewhere."""
        try:
            answer = await self._unless_lost(self._call(place.address, closures, recipes))
            if answer is None:
                self._end_lost(queue, closures)
            if answer != NO_SESSION:
                return answer
            self._known.pop(task, None)
            self._put_back(queue, closures)
        except (OSError, asyncio.CancelledError):
            if queue.closed:
                raise
            if self._lost is not None:
                self._end_lost(queue, closures)
                return None
            self._members.lose(task, place, CLOSED)
            self._put_back(queue, closures)
        except Exception as error:  # noqa: BLE001 - Dask's own, such as a message it can't read
            for closure in closures:
                _end(queue, closure, error)
        return None

    def _settle(self, queue: WorkQueue, closure: Closure, answer: Any) -> None:
        function, seconds = closure.sent.function, answer["seconds"]
        self._seconds[function.number] = seconds
        if "appended" in answer:
            function.lists.extend(loaded(answer["appended"]))
        error = None
        if "error" in answer:
            error = loaded(answer["error"])
            closure.result.fail(error)
        elif answer["result"] is None:
            closure.result.set(None)
        else:
            closure.result.set_sent(functools.partial(loaded, answer["result"]))
        queue.finished(closure, error, answer["traffic"], seconds)

    async def _call(self, address: str, closures: list[Closure], recipes: dict[int, Frames]) -> Any:
        """Has a worker run closures of a function, with the recipe of what it lacked."""
        message = {
            "fn": closures[0].sent.function.number,
            "args": [one.sent.args for one in closures],
            "recipes": recipes,
        }
        return await self._pool(address).distlab_run(
            session=self._session, message=ToPickle(message)
        )

    async def _unless_lost(self, call: Coroutine[Any, Any, Any]) -> Any:
        """Returns what a call returns; None as soon as a server is lost.

        Dask goes on with some calls that are cancelled: nobody waits for these.
        """
        assert self._loss is not None
        calling = asyncio.ensure_future(call)
        calling.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            await asyncio.wait((calling, self._loss), return_when=asyncio.FIRST_COMPLETED)
            return calling.result() if calling.done() else None
        finally:
            calling.cancel()

    def _end_lost(self, queue: WorkQueue, closures: list[Closure]) -> None:
        lost = self._lost
        assert lost is not None
        for closure in closures:  # each with an error of its own, which keeps frames alive
            _end(queue, closure, type(lost)(str(lost)))

    def _put_back(self, queue: WorkQueue, closures: list[Closure]) -> None:
        for closure in closures:
            queue.put_back(closure)
        self.wake()

    def note_lost(self, task: Task, place: Presence, seen: str) -> None:
        """Emits an event of a lost task, unless all are, as the cluster has ended."""
        self._known.pop(task, None)
        self.wake()
        at_ns = time.monotonic_ns()

        async def note() -> None:
            if self._queue is not None and self._members.addresses:
                self._away.add(task)
                reason = await why_lost(place, seen)
                self._queue.note_task(task.job, task.index, "lost", reason, at_ns)

        noting = asyncio.ensure_future(note())
        _notes.add(noting)
        noting.add_done_callback(_notes.discard)


_notes: Final[set[asyncio.Task[None]]] = set()  # the event loop keeps no reference


def _end(queue: WorkQueue, closure: Closure, error: BaseException) -> None:
    closure.result.fail(error)
    queue.finished(closure, error, {})
