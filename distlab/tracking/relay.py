"""A run's events as calls of a logger, for live recordings and recorded runs alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distlab.events import (
    Advice,
    Compile,
    Error,
    Event,
    Lost,
    Metric,
    Run,
    RunEnd,
    Step,
    Strategy,
    Unknown,
)
from distlab.tracking.batch_images import BatchImages, Drawn
from distlab.tracking.figures import Figures
from distlab.tracking.logger import Logger, RunFacts


class Relay:
    """Calls a logger for events. The calls depend on the events and their order alone."""

    def __init__(self, logger: Logger, path: Path | None) -> None:
        self._logger = logger
        self._path = path
        self._run: Run | None = None
        self._strategy: Strategy | None = None
        self._started = self._described = False
        self._last_step = -1
        self._newest_ns = 0
        self._figures = Figures()
        self._images = BatchImages()
        self._drawn: Drawn | None = None

    def add(self, event: Event | Unknown) -> None:
        """Passes an event on."""
        if isinstance(event, Unknown):
            return
        self._newest_ns = max(self._newest_ns, event.time_ns)
        self._take_batches(self._images.add(event))
        if self._figures.due(event.time_ns):
            self._log_figures(event.time_ns)
        self._figures.add(event)
        match event:
            case Run():
                self._run, self._described = event, False
            case Strategy():
                self._strategy, self._described = event, False
            case Step():
                self._log_batch(event.step)
                self._last_step = event.step
            case Metric():
                self._begin()
                self._logger.log_scalars(
                    max(event.step, 0), event.values, self._unix_ns(event.time_ns)
                )
            case _:
                self._log_text(event)

    def flush(self) -> None:
        """Has the logger pass on what it collected, if it has started."""
        if self._started:
            self._logger.flush()

    def finish(self, end: RunEnd | None) -> None:
        """Passes on what was held back, and the end."""
        self._take_batches(self._images.take())
        self._log_batch(self._last_step + 1)
        self._log_figures(self._newest_ns)
        self._begin()
        self.flush()
        if end is None:
            self._logger.finish("running", "")
        else:
            self._logger.finish(end.status, end.message)

    def abandon(self, message: str) -> None:
        """Ends the logger, if it has started, without what is still to come."""
        if self._started:
            self._logger.finish("failed", message)

    def _begin(self) -> None:
        """Starts the logger before its first call, and passes it the facts of the run."""
        run = self._run
        if not self._started:
            self._started = True
            name = run.name if run else ""
            steps = run.total_steps if run else None
            began_ns = run.unix_ns if run else 0
            self._logger.start(RunFacts(name, self._path, began_ns, steps))
        if not self._described:
            self._described = True
            self._logger.log_facts(_facts(run, self._strategy))

    def _unix_ns(self, time_ns: int) -> int:
        run = self._run
        return time_ns if run is None else run.unix_ns + time_ns - run.time_ns

    def _log_figures(self, time_ns: int) -> None:
        values = self._figures.take(time_ns)
        if values:
            self._begin()
            self._logger.log_scalars(max(self._last_step, 0), values, self._unix_ns(time_ns))

    def _take_batches(self, batches: Sequence[Drawn]) -> None:
        """Keeps a batch until its step, whose number it gets."""
        for batch in batches:
            self._log_batch(self._last_step + 1)
            self._drawn = batch

    def _log_batch(self, step: int) -> None:
        if self._drawn is not None:
            (sharding, images), self._drawn = self._drawn, None
            self._begin()
            self._logger.log_images(step, images, self._unix_ns(sharding.time_ns))

    def _log_text(self, event: Event) -> None:
        match event:
            case Advice():
                name, text = "advice", f"**{event.cause}**: {event.text} {event.remedy}"
            case Error():
                name, text = "errors", f"`{event.where}` raised {event.type}: {event.message}"
            case Compile():
                seconds = (event.trace_ns + event.compile_ns) / 1e9
                why = f"{event.cause}: {event.changed}" if event.changed else event.cause
                name, text = "programs", f"`{event.function}` compiled in {seconds:.2f} s ({why})"
            case Lost():
                name, text = "lost", f"{event.count} events: {event.reason}"
            case _:
                return
        self._begin()
        step = max(self._last_step, 0)
        self._logger.log_text(step, f"distlab/{name}", text, self._unix_ns(event.time_ns))


def _facts(run: Run | None, strategy: Strategy | None) -> dict[str, str]:
    facts: dict[str, str] = {}
    if run is not None:
        kinds = [device.kind for device in run.devices]
        counts = (f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        facts |= {"host": run.host, "platform": run.platform, "devices": ", ".join(counts)}
        facts |= run.versions
        facts |= {f"config.{name}": str(value) for name, value in run.config.items()}
    if strategy is not None:
        facts |= {"strategy": strategy.name, "replicas": str(len(strategy.devices))}
    return {name: text for name, text in facts.items() if text}
