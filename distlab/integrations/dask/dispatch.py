"""Closures of a coordinator's queue, run by workers in other processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from distributed.core import ConnectionPool

from distlab.coordinator._task_log import TaskLog
from distlab.coordinator._work_queue import Closure, WorkQueue
from distlab.errors import ClusterError, ServerLostError
from distlab.integrations.dask import references
from distlab.integrations.dask.closure_lane import ClosureLane
from distlab.integrations.dask.closures_sent import ClosuresSent, Sent
from distlab.integrations.dask.members import CLOSED, Membership, Task, weakly
from distlab.integrations.dask.messages import AFTER_ERROR, WITHDRAWN, Frames, Order, sendable
from distlab.integrations.dask.pickling import loaded
from distlab.integrations.dask.sockets import opened
from distlab.integrations.dask.versions import require_same

_OPEN_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 0.05
_NOBODY: Final = -1
_MOST_GIVEN: Final = 4
"""The closures that a worker has: one runs, and the others wait there for it to end."""

_SHORT_SECONDS: Final = 0.1
"""A closure waits in a worker only where those before it took no longer the last time."""

_IDLE_SECONDS: Final = 0.01
"""How long a worker has nothing to do before others give back what they did not begin."""

_NOT_RUN: Final = (WITHDRAWN, AFTER_ERROR)

_MOST_REPORTS: Final = 3
"""How often workers may report a server lost that Dask says is there, as in TensorFlow."""


class _Known(NamedTuple):
    """What is known of a worker that has the session.

    Attributes:
      task: Which one it is.
      lane: The connection to it.
      functions: The functions that it has.
      resources: The resources that it has.
    """

    task: Task
    lane: ClosureLane
    functions: set[int]
    resources: set[int]


@dataclass(eq=False)
class _Given:
    """A closure that a worker has.

    Attributes:
      number: Its number among the worker's.
      closure: The closure.
      call: Its answer.
    """

    number: int
    closure: Closure
    call: asyncio.Future[Any]


@final
class Dispatch:
    """Gives each worker one closure after another. It runs in the client's event loop.

    While a worker runs a short one it gets the next ones, so that it need not wait for them. As
    soon as another worker has nothing to do, or an error is told, it gives back what it has not
    begun.

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
        self._known: dict[str, _Known] = {}
        self._numbers = itertools.count()
        self._given: dict[Task, list[_Given]] = {}
        self._short: set[int] = set()  # functions
        self._begun: set[asyncio.Task[None]] = set()  # the event loop keeps no reference
        self._told: set[str] = set()
        self._reports = 0
        self._lost: ClusterError | None = None  # why all closures fail
        self._waits: set[asyncio.Event] = set()
        self._queue: WorkQueue | None = None
        self._away: set[Task] = set()
        members.on_lost(weakly(self._worker_lost))

    async def run(self, queue: WorkQueue, workers: int) -> None:
        """Runs what the queue holds, until it is closed."""
        tasks = [Task("worker", n) for n in range(workers)]
        self._given = {task: [] for task in tasks}
        self._queue = queue
        try:
            await asyncio.gather(
                self._fail_all(queue), *(self._serve(queue, task) for task in tasks)
            )
        except Exception as error:  # noqa: BLE001 - or those who wait would wait for ever
            self.fail(_broken(error))
            await self._fail_all(queue)
        finally:
            for task in self._begun:
                task.cancel()

    def fail(self, error: ClusterError) -> None:
        """Fails all closures from now on, and those that run, as a server is lost."""
        self._lost = self._lost or error
        for given in self._all_given():
            given.call.cancel()
        self.wake()

    def wake(self) -> None:
        """Tells idle workers that the queue has another closure, or is closed."""
        for event in self._waits:
            event.set()

    def withdraw(self) -> None:
        """Takes back what workers have and did not begin."""
        for task, given in self._given.items():
            if len(given) > 1:
                self._begin(self._withdraw(task, [one.number for one in given]))

    async def _withdraw(self, task: Task, numbers: list[int]) -> None:
        address = await self._members.present(task)
        known = self._known.get(address)
        if known is None:
            return
        with contextlib.suppress(OSError):
            rpc = self._pool(address)
            for number in await rpc.distlab_withdraw(session=self._session, numbers=numbers):
                known.lane.answer(number, WITHDRAWN)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        begun = asyncio.ensure_future(work)
        self._begun.add(begun)
        begun.add_done_callback(self._ended)

    def _ended(self, work: asyncio.Task[None]) -> None:
        self._begun.discard(work)
        error = None if work.cancelled() else work.exception()
        if error is not None:
            self.fail(_broken(error))

    def _all_given(self) -> list[_Given]:
        return [one for given in self._given.values() for one in given]

    async def _serve(self, queue: WorkQueue, task: Task) -> None:
        wake = asyncio.Event()
        self._waits.add(wake)
        loop = asyncio.get_running_loop()
        await self._present(queue, task)  # a worker begins to load JAX before its first closure
        while not queue.closed and self._lost is None:
            wake.clear()
            if not queue.waits or not self._has_room(task, queue):
                if not self._given[task]:
                    loop.call_later(_IDLE_SECONDS, self._balance, queue, task)
                await wake.wait()
                continue
            address = await self._present(queue, task)
            if address is None or not self._has_room(task, queue):
                continue
            closure = queue.take_now(task.index)
            if closure is not None:
                self._give(queue, task, address, closure, wake)

    def _has_room(self, task: Task, queue: WorkQueue) -> bool:
        given = self._given[task]
        if not given:
            return True
        if len(given) >= _MOST_GIVEN or not all(map(self._given.get, self._given)):
            return False  # another worker has nothing to do
        first = queue.first()
        closures = [one.closure for one in given]
        return first is not None and all(
            c.sent.function.number in self._short for c in [*closures, first]
        )  # fmt: skip

    def _balance(self, queue: WorkQueue, task: Task) -> None:
        """Takes back what others did not begin where a worker still has nothing to do."""
        if not self._given[task] and not queue.waits and not queue.closed:
            self.withdraw()

    def _give(
        self, queue: WorkQueue, task: Task, address: str, closure: Closure, wake: asyncio.Event
    ) -> None:
        # One that was answered counts, too, until its answer was looked at: it may be an error.
        before = [one.number for one in self._given[task]]
        order, known = Order(next(self._numbers), before), self._known[address]
        call = self._call(known, order, closure.sent)
        given = _Given(order.number, closure, call)
        self._given[task].append(given)

        async def run() -> None:
            try:
                await self._run(queue, task, address, given)
            finally:
                self._given[task].remove(given)
                wake.set()

        self._begin(run())

    async def _fail_all(self, queue: WorkQueue) -> None:
        """Fails what is scheduled once a server is lost."""
        wake = asyncio.Event()
        self._waits.add(wake)
        while not queue.closed:
            wake.clear()
            if self._lost is None or not queue.waits:
                await wake.wait()
                continue
            closure = queue.take_now(_NOBODY)
            if closure is not None:
                _end(queue, closure, self._lost)

    async def _present(self, queue: WorkQueue, task: Task) -> str | None:
        """Returns the address of a worker that has the session, once it is there."""
        address = await self._members.present(task)
        if address in self._known:
            return address
        try:
            await self.open(task, address)
        except OSError:
            self._members.lose(task, address, CLOSED)
            return None
        except ClusterError as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                queue.warn(f"{task} is not used: {error}", RuntimeWarning)
            self._members.lose(task, address, f"not used: {error}")
            return None
        return address

    async def open(self, task: Task, address: str) -> None:
        """Begins the session in a worker."""
        require_same(await asked(self._pool, address, "distlab_versions"), f"{task} at {address}")
        await asked(
            self._pool, address, "distlab_open", session=self._session, number=task.index,
            **self._about,
        )  # fmt: skip
        lane = await ClosureLane.over(
            await opened(address, self._pool, "distlab_closures", self._session)
        )
        self._known[address] = _Known(task, lane, set(), set())
        if task in self._away and self._queue is not None:
            self._away.discard(task)
            if self._queue.tasks is not None:
                self._queue.tasks.returned(task.index, server=task.job == "ps")

    async def _run(self, queue: WorkQueue, task: Task, address: str, given: _Given) -> None:
        closure = given.closure
        try:
            answer = await given.call
        except (OSError, asyncio.CancelledError):
            if queue.closed:
                raise
            if self._lost is None:
                self._forget(address)
                self._members.lose(task, address, CLOSED)
                self._put_back(queue, closure)
            else:
                _end(queue, closure, self._lost)
            return
        except Exception as error:  # noqa: BLE001 - Dask's own, such as a message it can't read
            _end(queue, closure, error)
            return
        _count(queue, task, answer)
        if answer in (WITHDRAWN, AFTER_ERROR):
            before = [one.call for one in self._given[task] if one.number < given.number]
            if answer == AFTER_ERROR and before:
                await asyncio.wait(before)  # the error comes first
            queue.give_back(closure)
            self.wake()
        elif "lost" in answer:
            await self._server_lost(queue, closure, answer)
        elif "error" in answer:
            self._note(queue, closure, answer)
            _end(queue, closure, loaded(answer["error"]))
        else:
            self._note(queue, closure, answer)
            closure.result.set_sent(_Loaded(answer["result"]))
            queue.finished(closure)

    def _note(self, queue: WorkQueue, closure: Closure, answer: Any) -> None:
        """Does to captured lists what a closure did, one that failed as well."""
        function = closure.sent.function
        (self._short.add if answer["seconds"] < _SHORT_SECONDS else self._short.discard)(
            function.number
        )
        if "changes" in answer:
            appended, others = loaded(answer["changes"])
            told = self._closures.note(function, appended, others)
            if told is not None:
                queue.warn(told)

    def _call(self, known: _Known, order: Order, sent: Sent) -> asyncio.Future[Any]:
        """Gives a closure to a worker, with what it needs and the worker lacks."""
        new = [] if sent.function.number in known.functions else [sent.function]
        needed = [*sent.resources, *(number for fn in new for number in fn.resources)]
        missing = [number for number in needed if number not in known.resources]
        forget = list(known.functions - self._in_use()) if new else []
        answer = known.lane.give(
            order,
            {
                "fn": sent.function.number,
                "args": None if sent.args is None else sendable(sent.args),
                "functions": [(fn.number, sendable(fn.frames)) for fn in new],
                "resources": [(n, sendable(self._closures.resources[n])) for n in missing],
                "forget": forget,
            },
        )

        def note(answered: asyncio.Future[Any]) -> None:
            ran = not answered.cancelled() and answered.exception() is None
            if ran and answered.result() not in _NOT_RUN:
                known.functions.update(fn.number for fn in new)
                known.functions.difference_update(forget)
                known.resources.update(missing)

        answer.add_done_callback(note)
        return answer

    def _forget(self, address: str) -> None:
        known = self._known.pop(address, None)
        if known is not None:
            known.lane.close()

    def _in_use(self) -> set[int]:
        """Returns the functions that workers have to keep."""
        given = {one.closure.sent.function.number for one in self._all_given()}
        return given | self._closures.kept()

    async def _server_lost(self, queue: WorkQueue, closure: Closure, answer: Any) -> None:
        """Takes a worker's report for transient, unless a server is lost or it comes again."""
        self._reports += 1
        if self._reports < _MOST_REPORTS and self._lost is None:
            await asyncio.sleep(_RETRY_SECONDS)
            self._put_back(queue, closure)
        else:
            self._note(queue, closure, answer)
            _end(queue, closure, self._lost or ServerLostError(answer["lost"]))

    def _put_back(self, queue: WorkQueue, closure: Closure) -> None:
        queue.put_back(closure)
        self.wake()

    def _worker_lost(self, task: Task, reason: str) -> None:
        for given in self._given.get(task, []):
            given.call.cancel()
        for address, known in list(self._known.items()):
            if known.task == task:
                self._forget(address)
        asyncio.get_running_loop().call_soon(self._note_lost, task, reason)

    def _note_lost(self, task: Task, reason: str) -> None:
        """Notes a lost task, unless all are, as the cluster has ended."""
        if self._queue is None or not self._members.addresses:
            return
        self._away.add(task)
        if self._queue.tasks is not None:
            self._queue.tasks.lost(task.index, reason, server=task.job == "ps")
            self._begin(self._tell_lost(self._queue.tasks, task, reason))

    async def _tell_lost(self, log: TaskLog, task: Task, reason: str) -> None:
        try:
            reason = await self._members.why_lost(task, reason)
        finally:
            log.settle(task.index, reason, server=task.job == "ps")


def _count(queue: WorkQueue, task: Task, answer: Any) -> None:
    """Counts what a closure read from parameter servers and changed there."""
    if isinstance(answer, dict) and "traffic" in answer:
        queue.linked(task.index, dict(answer["traffic"]))


def _end(queue: WorkQueue, closure: Closure, error: BaseException) -> None:
    closure.result.fail(error)
    queue.finished(closure, error)


def _broken(error: BaseException) -> ClusterError:
    return ClusterError(f"Functions are no longer given to workers: {error!r}")


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
