"""Events of a coordinator's functions and workers: one for each quarter of a second."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Final, Literal, TypeAlias, final

from distlab import events
from distlab.coordinator.closures import Closure
from distlab.variables.server_traffic import Figures, Link

Outcome: TypeAlias = Literal["done", "failed", "retried"]
Job: TypeAlias = Literal["worker", "ps"]
State: TypeAlias = Literal["lost", "returned"]


PERIOD_SECONDS: Final = 0.25
"""Period of an event while something changes."""

_UNCHANGED_SECONDS: Final = 1.0
"""Period while functions only run."""

_MOST_SPANS: Final = 64


class _Worker:
    """The counts of a worker in a period."""

    def __init__(self) -> None:
        self.begun = 0
        self.outcomes: dict[Outcome, int] = {"done": 0, "failed": 0, "retried": 0}
        self.busy_s = 0.0
        self.running = ""
        self.queued = 0
        self.spans = 0
        self.links: dict[int, Link] = {}


@final
class ClosureLog:
    """Counts what a queue's functions do, in periods. The queue calls it with its lock held."""

    def __init__(self, strategy: int, workers: int, servers: int, *, processes: bool) -> None:
        self._strategy = strategy
        self._counts = workers, servers
        self._processes = processes
        self._most_spans = max(_MOST_SPANS // workers, 1)
        self.active = threading.Event()  # set while there may be something to emit
        self._idle = True
        self._free: dict[int, float] = {}  # when each worker's newest function ended
        self._begin()

    def _begin(self) -> None:
        self._start_s = time.monotonic()
        self._changed = False
        self._scheduled = self._cancelled = self._left_out = 0
        self._workers: dict[int, _Worker] = {}
        self._functions: Counter[str] = Counter()
        self._spans: list[tuple[int, str, float, float, float, Outcome]] = []

    def scheduled(self) -> None:
        """Counts a function that was scheduled."""
        self._note()
        self._scheduled += 1

    def cancelled(self) -> None:
        """Counts a function that will not run."""
        self._note()
        self._cancelled += 1

    def begun(self, worker: int) -> None:
        """Counts a function that a worker began."""
        self._note()
        self._of(worker).begun += 1

    def ended(
        self,
        worker: int,
        closure: Closure,
        since: float,
        outcome: Outcome,
        seconds: float | None = None,
    ) -> None:
        """Counts a function that ended; one of several that a worker was given took a time."""
        self._note()
        now = time.monotonic()
        if seconds is not None:
            since = max(since, self._free.get(worker, since))
            now = self._free[worker] = min(now, since + seconds)
        own = self._of(worker)
        own.outcomes[outcome] += 1
        own.busy_s += now - max(since, self._start_s)
        if outcome != "retried":
            self._functions[closure.name] += 1
        if own.spans < self._most_spans:
            own.spans += 1
            span = (worker, closure.name, closure.put_at, since, now, outcome)
            self._spans.append(span)
        else:
            self._left_out += 1

    def linked(self, worker: int, figures: Figures) -> None:
        """Adds what a worker read from parameter servers and changed there."""
        links = self._of(worker).links
        for server, numbers in figures.items():
            links.setdefault(server, Link()).add(numbers)

    def task_event(
        self, job: Job, task: int, state: State, reason: str, at_ns: int | None
    ) -> events.TaskState:
        """Returns the event of a process that was lost or returned, now or at a time."""
        return events.TaskState(
            time_ns=at_ns or time.monotonic_ns(),
            strategy=self._strategy,
            job=job,
            task=task,
            state=state,
            reason=reason,
        )

    def event(
        self,
        held: Mapping[int, Sequence[tuple[Closure, float]]],
        waiting: int,
        *,
        everything: bool,
    ) -> events.Closures | None:
        """Ends the period and returns its event; None where nothing happened."""
        now = time.monotonic()
        if not self._changed:
            if not held:
                self._idle = True
                self.active.clear()
                return None
            if not everything and now - self._start_s < _UNCHANGED_SECONDS:
                return None
        for worker, functions in held.items():
            closure, since = functions[0]
            own = self._of(worker)
            own.queued = len(functions) - 1
            own.busy_s += now - max(since, self._start_s)
            own.running = closure.name
        made = self._made(now, waiting)
        self._begin()
        return made

    def _made(self, now: float, waiting: int) -> events.Closures:
        workers, servers = self._counts
        return events.Closures(
            time_ns=_ns(now),
            strategy=self._strategy,
            start_ns=_ns(self._start_s),
            processes=self._processes,
            workers=workers,
            servers=servers,
            scheduled=self._scheduled,
            cancelled=self._cancelled,
            waiting=waiting,
            active=[
                events.WorkerClosures(
                    worker=number,
                    begun=own.begun,
                    busy_ns=_ns(own.busy_s),
                    running=own.running,
                    queued=own.queued,
                    **own.outcomes,
                )
                for number, own in sorted(self._workers.items())
            ],
            links=[
                events.ServerLink(worker=number, server=server, **asdict(link))
                for number, own in sorted(self._workers.items())
                for server, link in sorted(own.links.items())
            ],
            functions=dict(self._functions),
            spans=[
                events.ClosureSpan(
                    worker=worker,
                    function=name,
                    waited_ns=_ns(since - put_at),
                    begin_ns=_ns(since - self._start_s),
                    took_ns=_ns(ended - since),
                    outcome=outcome,
                )
                for worker, name, put_at, since, ended, outcome in self._spans
            ],
            spans_left_out=self._left_out,
        )

    def _of(self, worker: int) -> _Worker:
        known = self._workers.get(worker)
        if known is None:
            known = self._workers[worker] = _Worker()
        return known

    def _note(self) -> None:
        if self._changed:
            return
        self._changed = True
        if self._idle:
            self._idle = False
            self._start_s = time.monotonic()
        self.active.set()


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
