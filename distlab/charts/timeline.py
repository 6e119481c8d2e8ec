"""The timeline of steps: waiting for input, calls of `run`, and steps in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    CustomJS,
    CustomJSTickFormatter,
    DataRange1d,
    HBar,
    Image,
    LinearColorMapper,
    Scatter,
    Segment,
)
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts._lane_cells import LEVELS, Slice, cut, image_rows, merged, palette
from distlab.charts._lane_spans import (
    COLOURS,
    FIRST_DEVICE,
    Range,
    chosen_steps,
    complete_range,
    lane_places,
    number_rows,
    span_rows,
    watched_rows,
)
from distlab.charts._timeline_tools import (
    TICK,
    TOGGLE,
    add_zooming,
    cell_hover,
    span_hover,
    time_ticker,
)
from distlab.folds import TimelineColumns
from distlab.folds.arrays import Floats
from distlab.folds.devices import computing
from distlab.text.units import count_text, plain, share_text

_EMPTY = "No steps.\nSteps appear here, call by call. Zoom with the wheel, drag to move."
_OF_CELLS = "strong: computes · pale: waits"
_OF_SPANS = "two blues in turn: steps in flight"
_OF_BOTH = "grey: idle · blank: not known"
_WHOLE = 0.98
"""A range of at least this share of the run counts as the whole run."""

_MOST_LABELS = 16
_CELLS_IN_SIGHT = 200
"""With fewer cells in sight, `wanted` asks for finer ones."""

_STEPS_AROUND = 20


class StepTimeline:
    """Steps over time: a lane for input, one for the calls of `run`, and one for each device.

    A step is in flight on a device from its call until it is ready there. Each step is a
    span where there is room; elsewhere cells of time show the share in which a step was in
    flight. The page's own script switches between them while the reader zooms. Steps before
    the newest ones have cells alone, unless `zoom` receives the range that `wanted` asks
    for, each time that `x_range` changes.

    Attributes:
      root: The figure.
      x_range: The range in sight, in seconds.
      source: One row for each lane: `lane`, `label`, `y`, `height`, `amount`.
      cells: One image for each lane's cells.
      under: The cells that single steps hide.
      spans: One row for each single span: `y`, `height`, `begin`, `end`, `sort` (its
        activity, an index of `COLOURS`), `number` (of the step or batch).
    """

    def __init__(self, *, height: int = 380) -> None:
        self.source = fig.new_source("timeline_lanes", "lane", "label", "y", "height", "amount")
        self.cells = fig.new_source("timeline_cells", "image", "x", "y", "dw", "dh", "steps")
        self.under = fig.new_source("timeline_under", "image", "x", "y", "dw", "dh", "steps")
        self.spans = fig.new_source(
            "timeline_spans", "y", "height", "begin", "end", "sort", "number"
        )
        self._watched = fig.new_source("timeline_watched", "y", "height", "begin", "end")
        self._numbers = fig.new_source("timeline_numbers", "x", "y", "text", "room")
        self._about = fig.new_source("timeline_about", "begin", "end", "step_s", "lanes")
        self._note = fig.new_source("timeline_note", "y", "text", "single")
        self._columns: TimelineColumns | None = None
        self._detail: TimelineColumns | None = None
        plot = fig.new_figure(
            "Steps over time",
            x_label="since the run began (seconds, or h:mm:ss)\nright: share of the time known",
            height=height,
            x_range=DataRange1d(range_padding=0.0, min_interval=1e-5),
        )
        self.root = plot
        self.x_range = plot.x_range
        self._draw_rows(plot)
        plot.xaxis.ticker = time_ticker()
        plot.xaxis.formatter = CustomJSTickFormatter(code=TICK)
        plot.ygrid.visible = False
        plot.min_border_left = 64
        self._empty = fig.add_empty_text(plot, _EMPTY)

    def _draw_rows(self, plot: figure) -> None:
        nothing = HBar(y="y", left=0, right=0, height="height", fill_alpha=0, line_alpha=0)
        room = fig.draw(plot, self.source, nothing)
        whole = fig.draw(plot, self._about, Segment(x0="begin", y0=0, x1="end", y1=0, line_alpha=0))
        mapper = LinearColorMapper(palette=palette(), low=0, high=3 * LEVELS - 1)
        picture = Image(image="image", x="x", y="y", dw="dw", dh="dh", color_mapper=mapper)
        cells, under = fig.draw(plot, self.cells, picture), fig.draw(plot, self.under, picture)
        watched = fig.draw_track(plot, self._watched, "end", left="begin", height="height")
        activities = LinearColorMapper(palette=COLOURS, low=0, high=len(COLOURS) - 1)
        sort = {"field": "sort", "transform": activities}
        spans = fig.draw_bars(plot, self.spans, "begin", "end", height="height", color=sort)
        numbers = fig.draw_text(plot, self._numbers, color="#ffffff", size="11px", x_offset=4)
        note = fig.draw(plot, self._note, Scatter(x=0, y="y", size=1, fill_alpha=0, line_alpha=0))
        words: dict[str, Any] = {"x": 0, "text_baseline": "middle", "text_font_size": "11px"}
        of_cells = fig.add_labels(plot, self._note, **words)
        of_spans = fig.add_labels(plot, self._note, text="single", visible=False, **words)
        plot.x_range.renderers = [whole]
        plot.y_range = fig.range_of([room, note], 0.06)
        fig.label_rows(plot, self.source, left="label", right="amount")
        add_zooming(plot)
        lanes = self.source
        plot.add_tools(cell_hover(cells, lanes), cell_hover(under, lanes), span_hover(spans, lanes))
        shown = {"under": under, "spans": spans, "watched": watched, "numbers": numbers}
        shown |= {"of_cells": of_cells, "of_spans": of_spans}
        toggle = CustomJS(
            args={**shown, "about": self._about, "words": self._numbers, "plot": plot}, code=TOGGLE
        )
        for name in ("start", "end"):
            plot.x_range.js_on_change(name, toggle)
        for name in ("inner_width", "inner_height"):
            plot.js_on_change(name, toggle)
        self._about.js_on_change("data", toggle)

    @property
    def visible(self) -> Range | None:
        """The range in sight, as the page reported it; None for the whole run."""
        begin, end = self.x_range.start, self.x_range.end
        now = 0.0 if self._columns is None else self._columns["now_s"]
        if begin is None or end is None or not np.isfinite([begin, end]).all() or begin >= end:
            return None
        return None if end - begin >= _WHOLE * now else (float(begin), float(end))

    def wanted(self) -> Range | None:
        """Returns the range that needs more detail by `zoom`, None when none does."""
        seen, columns = self.visible, self._columns
        if seen is None or columns is None:
            return None
        low, high = seen
        if self._shows(columns, seen):
            return None
        if self._detail is not None and self._shows(self._detail, seen):
            return None
        # Steps in flight at the edges were called before the range, and ready after it.
        step_s = columns["now_s"] / max(1, columns["step_count"])
        margin = max((high - low) / 2, _STEPS_AROUND * step_s)
        low, high = max(0.0, low - margin), min(columns["now_s"], high + margin)
        return (low, high) if low < high else None

    @staticmethod
    def _shows(columns: TimelineColumns, seen: Range) -> bool:
        """Returns whether these columns show a range with as much detail as the page can."""
        begin, width = columns["cell_start_s"], columns["cell_s"]
        inside = begin <= seen[0] and seen[1] <= begin + width * len(columns["steps"])
        fine = width <= (seen[1] - seen[0]) / _CELLS_IN_SIGHT
        return inside and (fine or chosen_steps(columns, seen) != slice(0, 0))

    def update(self, columns: TimelineColumns) -> None:
        """Shows the newest `Folds.columns("timeline")`."""
        self._columns = columns
        self.redraw()

    def zoom(self, columns: TimelineColumns | None) -> None:
        """Shows a part in more detail: what `folds.window` returned for `wanted`, or None."""
        self._detail = columns
        self.redraw()

    def redraw(self) -> None:
        """Draws the range in sight: call it when `x_range` changes."""
        if self._columns is None:
            return
        columns = merged(self._columns)
        detail = self._fitting_detail(columns)
        near = columns if detail is None else detail
        chosen = chosen_steps(near, self.visible)
        exact = complete_range(near, chosen)
        some = bool(columns["step_count"] or columns["devices"] or len(columns["waits"]))
        slices: dict[bool, list[Slice]] = {False: [], True: []}
        for whole in _slices(columns, detail) if some else []:
            for part, inside in cut(whole, exact):
                slices[inside].append(part)
        if some:
            self.source.data = _lane_rows(columns)
        else:
            fig.clear(self.source)
        self.cells.data = dict(image_rows(slices[False]))
        self.under.data = dict(image_rows(slices[True]))
        spans = span_rows(near, chosen, exact)
        self.spans.data = dict(spans)
        self._watched.data = dict(watched_rows(near, exact))
        self._numbers.data = dict(number_rows(spans))
        self._show_notes(columns, near["begin_s"][chosen], some=some)
        fig.set_empty(self._empty, not some)

    def _fitting_detail(self, columns: TimelineColumns) -> TimelineColumns | None:
        """Returns the columns of `zoom` while they have the same lanes and a part is in sight."""
        detail = self._detail
        if detail is None or self.visible is None:
            return None
        if detail["busy"].shape[1] != columns["busy"].shape[1]:
            return None
        return merged({**detail, "computes": columns["computes"]})  # a part may hold no capture

    def _show_notes(self, columns: TimelineColumns, begins: Floats, *, some: bool) -> None:
        lanes = len(columns["device"]) + FIRST_DEVICE
        gaps = np.diff(begins)
        self._about.data = {
            "begin": [0.0] if some else [],
            "end": [max(columns["now_s"], 1e-3)] if some else [],
            "step_s": [float(np.median(gaps)) if len(gaps) else 1.0] if some else [],
            "lanes": [lanes] if some else [],
        }
        texts = [_OF_BOTH, _OF_CELLS] if some else []  # from below
        middles, _ = lane_places(lanes)
        top = 1.5 * middles[0] - 0.5 * middles[1]
        if columns["group"] > 1:
            texts.append(
                f"{count_text(columns['devices'])} devices in {len(columns['device'])} rows of "
                f"{columns['group']}: mean shares; a step ends when the last is ready"
            )
        self._note.data = {
            "y": [top + 0.064 * (top + lanes) * (line + 0.5) for line in range(len(texts))],
            "text": texts,
            "single": [_OF_SPANS if text == _OF_CELLS else text for text in texts],
        }


def _slices(columns: TimelineColumns, detail: TimelineColumns | None) -> list[Slice]:
    """Returns the cells of the whole run, with those of a detail in their place."""
    whole = Slice(columns, 0, len(columns["steps"]))
    if detail is None:
        return [whole]
    begin = detail["cell_start_s"]
    there = (begin, begin + detail["cell_s"] * len(detail["steps"]))
    around = [part for part, inside in cut(whole, there) if not inside]
    return [*around, Slice(detail, 0, len(detail["steps"]))]


def _lane_rows(columns: TimelineColumns) -> dict[str, list[str] | Floats]:
    devices = [plain(name, 24) for name in columns["device"]]
    watched = columns["watched"]
    busy = computing(columns["busy"], columns["computes"])
    covered = (np.nan_to_num(busy) * watched[:, None]).sum(axis=0)
    shares = covered / watched.sum() if watched.any() else np.full(len(devices), np.nan)
    texts = [share_text(share) if np.isfinite(share) else "" for share in shares]
    length = columns["now_s"] or 1.0
    waited, calls = (
        share_text(shares.sum() * columns["cell_s"] / length)
        for shares in (columns["waited"], columns["calls"])
    )
    middles, heights = lane_places(len(devices) + FIRST_DEVICE)
    return {
        "lane": ["input", "python", *devices],
        "label": ["input", _caller(columns["device"]), *fig.thinned(devices, _MOST_LABELS)],
        "y": middles,
        "height": heights,
        "amount": [waited, calls, *fig.thinned(texts, _MOST_LABELS)],
    }


def _caller(devices: Sequence[str]) -> str:
    """Names the lane of calls, which of several workers are those of the first."""
    workers = [name.rpartition(" ")[0] for name in devices]
    return f"{workers[0]} python" if len(set(workers)) > 1 else "python"
