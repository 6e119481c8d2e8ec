"""What ran, where, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from distlab.events import Error, Event, Lost, Run, RunEnd, Strategy
from distlab.folds._fold import Clock, Columns

_MOST_ERRORS = 20


class Header:
    """The latest run's name, machine and devices, its strategy, errors and end.

    Columns (single values unless said otherwise):
      name, host, platform, process, unix_ns: as the `Run` event says; empty
        and 0 before it.
      time_ns: when the run began by its own clock, or None.
      versions: package name to version.
      devices: list of device names of the process.
      simulated: true when they are CPU devices that share one machine's cores.
      total_steps: steps the run means to take, or None.
      strategies: list of class names, one for each strategy made.
      strategy: class name of the newest strategy, empty before the first.
      replicas: list of its replicas' device names.
      status: `""` while nothing said how it ended, or `RunEnd`'s status.
      message: what was raised.
      ended_s: seconds from the beginning to the end, or None.
      errors: list of `"where: type: message"`, the newest 20.
      error_count: how many there were.
      not_recorded: events of which the recording says that it left them out.
      not_recorded_reasons: list of why, each reason once.
    """

    KINDS: ClassVar[tuple[type[Event], ...]] = (Run, RunEnd, Strategy, Error, Lost)

    def __init__(self) -> None:
        self.version = 0
        self._run: Run | None = None
        self._end: RunEnd | None = None
        self._clock = Clock()
        self._strategies: dict[int, Strategy] = {}
        self._errors: list[str] = []
        self._error_count = 0
        self._not_recorded = 0
        self._reasons: dict[str, None] = {}

    def add(self, events: Sequence[Event]) -> None:
        """Takes events, oldest first."""
        for event in events:
            self._take(event)
        self.version += bool(events)

    def _take(self, event: Event) -> None:
        match event:
            case Run():
                self._run, self._end, self._clock = event, None, Clock()
                self._clock.start(event.time_ns)
            case RunEnd():
                self._end = event
            case Strategy():
                self._strategies.pop(event.strategy, None)
                self._strategies[event.strategy] = event
            case Error():
                self._error_count += 1
                self._errors.append(f"{event.where}: {event.type}: {event.message}")
                del self._errors[:-_MOST_ERRORS]
            case Lost():
                self._not_recorded += event.count
                self._reasons[event.reason] = None
            case _:
                pass

    def columns(self) -> Columns:
        """Returns the columns that the class describes."""
        run, end = self._run, self._end
        newest = next(reversed(self._strategies.values()), None)
        devices = run.devices if run else []
        return {
            "name": run.name if run else "",
            "host": run.host if run else "",
            "platform": run.platform if run else "",
            "process": run.process if run else 0,
            "unix_ns": run.unix_ns if run else 0,
            "time_ns": run.time_ns if run else None,
            "versions": dict(run.versions) if run else {},
            "devices": [device.name for device in devices],
            "simulated": any(device.simulated for device in devices),
            "total_steps": run.total_steps if run else None,
            "strategies": [strategy.name for strategy in self._strategies.values()],
            "strategy": newest.name if newest else "",
            "replicas": list(newest.devices) if newest else [],
            "status": end.status if end else "",
            "message": end.message if end else "",
            "ended_s": self._clock.seconds(end.time_ns) if end else None,
            "errors": list(self._errors),
            "error_count": self._error_count,
            "not_recorded": self._not_recorded,
            "not_recorded_reasons": list(self._reasons),
        }
