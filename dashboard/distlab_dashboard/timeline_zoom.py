"""Single steps for the timeline, read in the background for the range in sight."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from distlab.charts import StepTimeline
from distlab.errors import RecordError
from distlab.events import Event
from distlab.folds import Join, TimelineColumns, window
from distlab.page.feed import Feed
from distlab_dashboard.time_slice import events_between

_FAR_NS: Final = 1 << 62
_MOST_EVENTS: Final = 400_000
"""Events read for one range; a range with more of them is shown by its cells."""

Range: TypeAlias = tuple[float, float]


class TimelineZoom:
    """Supplies a timeline with the steps of the range in sight."""

    def __init__(
        self, feed: Feed, chart: StepTimeline, failed: Callable[[Exception], None]
    ) -> None:
        self._failed = failed
        self._feed = feed
        self._chart = chart
        self._seen: Range | None = None
        self._asked: Range | None = None
        self._read: TimelineColumns | None = None
        self._thread: threading.Thread | None = None

    def update(self) -> None:
        """Shows what was read and reads what is missing; a callback of the page calls it."""
        read, self._read = self._read, None
        if read is not None:
            self._chart.zoom(read)
        seen = self._chart.visible
        if seen != self._seen:
            self._seen = seen
            self._chart.redraw()
        wanted, zero_ns = self._chart.wanted(), self._feed.zero_ns
        if wanted is None or zero_ns is None or wanted == self._asked or self._thread is not None:
            return
        self._asked = wanted
        self._thread = threading.Thread(
            target=self._work, args=(wanted, zero_ns), name="distlab-timeline-zoom", daemon=True
        )
        self._thread.start()

    def _work(self, wanted: Range, zero_ns: int) -> None:
        try:
            with suppress(RecordError):  # the server was stopped, and closed the run
                self._read_steps(wanted, zero_ns)
        except Exception as error:  # noqa: BLE001 - the page reports it
            self._failed(error)
        self._thread = None

    def _read_steps(self, wanted: Range, zero_ns: int) -> None:
        low_ns, high_ns = (zero_ns + round(second * 1e9) for second in wanted)
        source = self._feed.source
        pages = itertools.chain(
            events_between(source, -_FAR_NS, low_ns, standing=True),
            events_between(source, low_ns, high_ns),
        )
        events: list[Event] = []
        join = Join()
        for page in pages:
            events.extend(join.add([one for one in page if isinstance(one.event, Event)]))
            if len(events) > _MOST_EVENTS:
                return
        self._read = window(events, zero_ns, *wanted)
