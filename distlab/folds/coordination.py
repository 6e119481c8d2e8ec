"""The work of a coordinator's workers, and their traffic with parameter servers."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple, TypedDict, cast

import numpy as np

from distlab.events import (
    Closures,
    ClosureSpan,
    Event,
    Run,
    ServerLink,
    TaskState,
    WorkerClosures,
)
from distlab.folds._fold import Clock, Fold
from distlab.folds._series import Cells
from distlab.folds.arrays import Floats
from distlab.folds.joining.members import MOST_WORKERS

_FIRST_WIDTH_S: Final = 0.25
_MOST_CELLS: Final = 480
_MOST_SPANS: Final = 2_000
_MOST_CHANGES: Final = 200
_MOST_STRATEGIES: Final = 4
_MOST_ROWS: Final = 64
_RECENT_S: Final = 5.0


_LINK_COUNTS: Final = (
    *("reads", "read_bytes", "read_messages"),
    *("changes", "change_bytes", "change_messages"),
)


class CoordinationColumns(TypedDict):
    """Columns of `Coordination`: the coordinator that worked last.

    Columns named `worker...` have an entry for each worker, those named `link...` one for each
    worker and server that exchanged anything, those named `task...` one for each process that was
    lost or has returned, and those named `span...` one for each function that is known singly.
    """

    strategy: int | None  #: Number of its strategy, None without a coordinator
    processes: bool  #: Whether the workers are other processes; else they are threads
    servers: int
    now_s: float  #: Seconds from the run's begin to the newest event
    scheduled: int
    waiting: int  #: Number of functions in the coordinator's queue
    cancelled: int  #: Number of functions that an earlier one's error cancelled
    unserved: int  #: Number of functions that failed without a worker, as a server was lost
    function: list[str]  #: Names of functions that returned or failed, the most frequent first
    function_count: list[int]
    worker: list[str]
    worker_done: list[int]
    worker_failed: list[int]
    worker_retried: list[int]  #: Functions that went back to the queue, as the worker was lost
    worker_running: list[str]  #: The function that it has, empty for none
    worker_queued: list[int | None]  #: Sent and waiting there; None in older files
    worker_busy: list[float]  #: Share of the time since the first event in which it had one
    worker_used: list[int]  #: Changes of variables that the same function had read before
    worker_behind: list[float]  #: Others' changes since these reads, mean; NaN for none
    worker_most_behind: list[int]
    worker_lost: list[int]
    worker_away: list[bool]  #: Whether it is lost now
    link_worker: list[int]
    link_server: list[int]
    link_reads: list[int]  #: Values that the worker received
    link_read_bytes: list[int]
    link_read_per_s: list[float]  #: Bytes a second in the 5 s before the newest event
    link_read_messages: list[int | None]  #: Requests for them; None in older files
    link_changes: list[int]  #: Changes that it sent
    link_change_bytes: list[int]  #: Bytes of their operands
    link_change_per_s: list[float]
    link_change_messages: list[int | None]  #: None in older files
    task_name: list[str]  #: Names of the processes, such as `"worker 1"` or `"server 0"`
    task_state: list[str]  #: `"lost"` or `"returned"`
    task_reason: list[str]  #: Why it was lost, as far as known
    task_s: list[float]  #: When, in seconds since the run began. The newest 200.
    cell_s: Floats  #: Middles of finished cells, since the run began
    cell_read_per_s: Floats  #: Bytes that workers received, a second
    cell_change_per_s: Floats  #: Bytes that they sent, a second
    cell_width_s: float
    row_busy: Floats  #: `(cells, workers)`: share of each cell, the first 64 workers
    span_worker: list[int]  #: Numbers of the workers. The newest 2,000.
    span_begin_s: list[float]
    span_end_s: list[float]
    span_waited_s: list[float]  #: How long it had waited in the queue
    span_function: list[str]
    span_outcome: list[str]  #: `"done"`, `"failed"` or `"retried"`
    spans_left_out: int


class _Span(NamedTuple):
    worker: int
    begin_s: float
    end_s: float
    waited_s: float
    function: str
    outcome: str


class _Change(NamedTuple):
    name: str
    state: str
    reason: str
    s: float


@dataclass
class _Worker:
    """One worker, in all periods."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    running: str = ""
    queued: int | None = 0
    used: int = 0
    most_behind: int = 0
    behind: int = 0
    busy_s: float = 0.0


@dataclass
class _Link:
    """One worker and one server, in all periods."""

    worker: int
    server: int
    reads: int = 0
    read_bytes: int = 0
    changes: int = 0
    change_bytes: int = 0
    read_messages: int | None = None
    change_messages: int | None = None
    recent: deque[tuple[float, int, int]] = field(default_factory=deque)

    def add(self, link: ServerLink, at_s: float) -> None:
        """Adds a period that ended at a time."""
        for name in _LINK_COUNTS:
            count = getattr(link, name)
            if count is not None:
                setattr(self, name, (getattr(self, name) or 0) + count)
        self.recent.append((at_s, link.read_bytes, link.change_bytes))
        self._forget(at_s)

    def _forget(self, now_s: float) -> None:
        while self.recent and self.recent[0][0] <= now_s - _RECENT_S:
            self.recent.popleft()

    def per_s(self, now_s: float) -> tuple[float, float]:
        """Returns the bytes read and sent a second, of late."""
        self._forget(now_s)
        seconds = min(_RECENT_S, now_s) or 1.0
        return (
            sum(read for _, read, _ in self.recent) / seconds,
            sum(sent for _, _, sent in self.recent) / seconds,
        )


class _Coordinator:
    """One strategy's coordinator."""

    def __init__(self) -> None:
        self.newest: Closures | None = None
        self.first_s = 0.0
        self.counts: Counter[str] = Counter()
        self.functions: Counter[str] = Counter()
        self.workers: dict[int, _Worker] = {}
        self.links: dict[tuple[int, int], _Link] = {}
        self.tasks: deque[_Change] = deque(maxlen=_MOST_CHANGES)
        self.lost: Counter[str] = Counter()
        self.away: set[str] = set()
        self.cells = Cells(0.0, _FIRST_WIDTH_S, _MOST_CELLS, widen=True)
        self.spans: deque[_Span] = deque(maxlen=_MOST_SPANS)
        self.left_out = 0


class Coordination(Fold[CoordinationColumns]):
    """The closures of a `ClusterCoordinator`, and what its workers read and change.

    All sums are exact. Of functions that ran, the newest 2,000 that an event names are kept.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Closures, TaskState)

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        """Forgets the run before."""
        self._clock = Clock()
        self._now_s = 0.0
        self._known: OrderedDict[int, _Coordinator] = OrderedDict()

    def _add(self, event: Event) -> None:
        match event:
            case Run():
                self._begin()
                self._clock.start(event.time_ns)
            case Closures():
                self._now_s = max(self._now_s, self._clock.seconds(event.time_ns))
                _add_period(self._of(event.strategy), event, self._clock)
            case TaskState():
                self._add_task(event)
            case _:
                pass

    def _of(self, strategy: int) -> _Coordinator:
        """Returns a strategy's coordinator, and makes it the one that worked last."""
        known = self._known.get(strategy)
        if known is None:
            known = self._known[strategy] = _Coordinator()
            if len(self._known) > _MOST_STRATEGIES:
                self._known.popitem(last=False)
        self._known.move_to_end(strategy)
        return known

    def _add_task(self, event: TaskState) -> None:
        own = self._of(event.strategy)
        at_s = self._clock.seconds(event.time_ns)
        self._now_s = max(self._now_s, at_s)
        name = f"{'server' if event.job == 'ps' else 'worker'} {event.task}"
        own.tasks.append(_Change(name, event.state, event.reason, at_s))
        if event.state == "lost":
            own.lost[name] += 1
            own.away.add(name)
        else:
            own.away.discard(name)

    def columns(self) -> CoordinationColumns:
        """Returns the coordinator that worked last."""
        known = [(n, own) for n, own in self._known.items() if own.newest is not None]
        strategy, own = known[-1] if known else (None, _Coordinator())
        newest = own.newest
        names = [f"worker {n}" for n in range(min(newest.workers, MOST_WORKERS) if newest else 0)]
        workers = [own.workers.get(n, _Worker()) for n in range(len(names))]
        links = [link for _, link in sorted(own.links.items())]
        rates = [link.per_s(self._now_s) for link in links]
        functions = own.functions.most_common()
        passed_s = max(self._now_s - own.first_s, 1e-9)
        cells = own.cells
        whole = min(int(self._now_s // cells.width_s), cells.most) if newest else 0
        rows = cells.of("busy", _MOST_ROWS)[:, : len(names)]
        columns: dict[str, object] = {
            "strategy": strategy,
            "processes": bool(newest and newest.processes),
            "servers": newest.servers if newest else 0,
            "now_s": self._now_s,
            "scheduled": own.counts["scheduled"],
            "waiting": newest.waiting if newest else 0,
            "cancelled": own.counts["cancelled"],
            "unserved": own.counts["unserved"],
            "function": [name for name, _ in functions],
            "function_count": [count for _, count in functions],
            "worker": names,
            **_listed("worker", workers, "done", "failed", "retried", "running", "queued"),
            **_listed("worker", workers, "used", "most_behind"),
            "worker_busy": [min(worker.busy_s / passed_s, 1.0) for worker in workers],
            "worker_behind": [w.behind / w.used if w.used else np.nan for w in workers],
            "worker_lost": [own.lost[name] for name in names],
            "worker_away": [name in own.away for name in names],
            **_listed("link", links, "worker", "server", *_LINK_COUNTS),
            "link_read_per_s": [read for read, _ in rates],
            "link_change_per_s": [sent for _, sent in rates],
            **_listed("task", own.tasks, *_Change._fields),
            "cell_s": (np.arange(whole, dtype=np.float64) + 0.5) * cells.width_s,
            "cell_read_per_s": cells.of("read")[:whole] / cells.width_s,
            "cell_change_per_s": cells.of("sent")[:whole] / cells.width_s,
            "cell_width_s": cells.width_s,
            "row_busy": np.minimum(rows[: whole + 1] / cells.width_s, 1.0),
            **_listed("span", own.spans, *_Span._fields),
            "spans_left_out": own.left_out,
        }
        return cast("CoordinationColumns", columns)


def _listed(prefix: str, rows: Iterable[object], *names: str) -> dict[str, list[object]]:
    """Returns attributes of rows as columns with a prefix."""
    kept = list(rows)
    return {f"{prefix}_{name}": [getattr(row, name) for row in kept] for name in names}


def _add_period(own: _Coordinator, event: Closures, clock: Clock) -> None:
    """Adds what a coordinator did in a period."""
    start_s, end_s = clock.seconds(event.start_ns), clock.seconds(event.time_ns)
    if own.newest is None:
        own.first_s = start_s
    own.newest = event
    own.counts["scheduled"] += event.scheduled
    own.counts["cancelled"] += event.cancelled
    own.functions.update(event.functions)
    own.left_out += event.spans_left_out
    for worker in own.workers.values():
        worker.running, worker.queued = "", 0
    busy = np.zeros(_MOST_ROWS)
    for one in event.active:
        if one.worker < 0:
            own.counts["unserved"] += one.failed
            continue
        _add_worker(own.workers.setdefault(one.worker, _Worker()), one)
        if one.worker < _MOST_ROWS:
            busy[one.worker] = one.busy_ns / 1e9
    for link in event.links:
        _add_link(own, link, end_s)
    own.cells.of("busy", _MOST_ROWS)  # each worker has a lane, also one without work
    for name, amount in (
        ("busy", busy),
        ("read", float(sum(link.read_bytes for link in event.links))),
        ("sent", float(sum(link.change_bytes for link in event.links))),
    ):
        own.cells.spread(name, start_s, max(end_s, start_s + 1e-9), amount)
    own.spans.extend(_span(span, event, clock) for span in event.spans)


def _add_worker(worker: _Worker, period: WorkerClosures) -> None:
    for name in ("done", "failed", "retried"):
        setattr(worker, name, getattr(worker, name) + getattr(period, name))
    worker.busy_s += period.busy_ns / 1e9
    worker.running, worker.queued = period.running, period.queued


def _add_link(own: _Coordinator, link: ServerLink, end_s: float) -> None:
    kept = own.links.setdefault((link.worker, link.server), _Link(link.worker, link.server))
    kept.add(link, end_s)
    worker = own.workers.setdefault(link.worker, _Worker())
    worker.used += link.used
    worker.behind += link.behind
    worker.most_behind = max(worker.most_behind, link.most_behind)


def _span(span: ClosureSpan, event: Closures, clock: Clock) -> _Span:
    begin_ns = event.start_ns + span.begin_ns
    return _Span(
        span.worker,
        clock.seconds(begin_ns),
        clock.seconds(begin_ns + span.took_ns),
        span.waited_ns / 1e9,
        span.function,
        span.outcome,
    )
