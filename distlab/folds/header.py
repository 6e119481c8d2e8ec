"""The run's name, machine, end and errors, and its controlled loops."""

from __future__ import annotations

from typing import ClassVar, TypedDict

from distlab.events import Error, Event, Loop, Lost, Run, RunEnd, Strategy
from distlab.folds._fold import Clock, Fold

_MOST_ERRORS = 20


class HeaderColumns(TypedDict):
    """Columns of `Header`; texts are empty and numbers 0 before the `Run` event."""

    name: str
    host: str
    process: int
    unix_ns: int  #: The wall clock when the run began, in nanoseconds since 1970
    time_ns: int | None  #: The monotonic time when the run began, None before the `Run` event
    versions: dict[str, str]  #: Package names to versions
    config: dict[str, str | int | float | bool | None]  #: Settings that the program stated
    devices: list[str]
    simulated: bool  #: Whether they are CPU devices that share one machine's cores
    strategy: str  #: Class name of the newest strategy, empty before the first
    replicas: list[str]  #: Names of its replicas, by their devices
    places: list[str]  #: Names of the devices of its replicas
    status: str
    message: str  #: Text of the exception that ended the run
    ended_s: float | None  #: Seconds from the run's begin to its end, None before it
    errors: list[str]  #: The newest 20 errors as `"where: type: message"`
    error_count: int
    not_recorded: int  #: How many events the recording left out, by its own count
    not_recorded_reasons: list[str]


class Header(Fold[HeaderColumns]):
    """The newest run: its name, machine, devices, strategy, errors and end."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, RunEnd, Strategy, Error, Lost)

    def __init__(self) -> None:
        self._run: Run | None = None
        self._end: RunEnd | None = None
        self._clock = Clock()
        self._strategy: Strategy | None = None
        self._errors: list[str] = []
        self._error_count = 0
        self._not_recorded = 0
        self._reasons: dict[str, None] = {}

    def _add(self, event: Event) -> None:
        match event:
            case Run():
                self._run, self._end, self._clock = event, None, Clock()
                self._clock.start(event.time_ns)
            case RunEnd():
                self._end = event
            case Strategy():
                self._strategy = event
            case Error():
                self._error_count += 1
                self._errors.append(f"{event.where}: {event.type}: {event.message}")
                del self._errors[:-_MOST_ERRORS]
            case Lost():
                self._not_recorded += event.count
                self._reasons[event.reason] = None
            case _:
                pass

    def columns(self) -> HeaderColumns:
        """Returns the header of all events so far."""
        run, end = self._run, self._end
        strategy = self._strategy
        devices = run.devices if run else []
        return {
            "name": run.name if run else "",
            "host": run.host if run else "",
            "process": run.process if run else 0,
            "unix_ns": run.unix_ns if run else 0,
            "time_ns": run.time_ns if run else None,
            "versions": dict(run.versions) if run else {},
            "config": dict(run.config) if run else {},
            "devices": [device.name for device in devices],
            "simulated": any(device.simulated for device in devices),
            "strategy": strategy.name if strategy else "",
            "replicas": list(strategy.replicas) if strategy else [],
            "places": list(strategy.devices) if strategy else [],
            "status": end.status if end else "",
            "message": end.message if end else "",
            "ended_s": self._clock.seconds(end.time_ns) if end else None,
            "errors": list(self._errors),
            "error_count": self._error_count,
            "not_recorded": self._not_recorded,
            "not_recorded_reasons": list(self._reasons),
        }


_ENDED = {"stopped", "done"}
_MOST_ENDED = 20


class LoopColumns(TypedDict):
    """Columns of `Loops`: one row for each loop, oldest first."""

    name: list[str]
    state: list[str]  #: `"running"`, `"paused"`, `"stopped"` or `"done"`


class Loops(Fold[LoopColumns]):
    """The loops that iterate over `distlab.controlled`; of ended loops the newest 20."""

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, Loop)

    def __init__(self) -> None:
        self._loops: dict[int, Loop] = {}

    def _add(self, event: Event) -> None:
        if isinstance(event, Run):
            self._loops.clear()
        elif isinstance(event, Loop):
            self._loops[event.loop] = event
            ended = [loop for loop, last in self._loops.items() if last.state in _ENDED]
            for loop in ended[:-_MOST_ENDED]:
                del self._loops[loop]

    def columns(self) -> LoopColumns:
        """Returns the loops of all events so far."""
        newest = list(self._loops.values())
        return {
            "name": [event.name for event in newest],
            "state": [event.state for event in newest],
        }
