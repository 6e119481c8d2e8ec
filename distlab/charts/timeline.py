"""The timeline of steps: what waits, what is called, and what each device has in flight."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.core.properties import value
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    CustomJSTickFormatter,
    DataRange1d,
    HBar,
    Image,
    LabelSet,
    LinearColorMapper,
    Scatter,
    Segment,
    Text,
)
from bokeh.plotting import figure

from distlab.charts import _lanes
from distlab.charts._parts import (
    add_empty_text,
    draw,
    label_rows,
    new_figure,
    rows_range,
    set_empty,
    thinned,
)
from distlab.charts._timeline_tools import (
    TICK,
    TOGGLE,
    add_zooming,
    cell_hover,
    span_hover,
    time_ticker,
)
from distlab.charts.theme import FAINT, FONT, INK
from distlab.folds import TimelineColumns
from distlab.text.units import count_text, plain, share_text

_EMPTY = (
    "No step was taken yet.\n"
    "strategy.run(...) shows here, call by call. Zoom with the wheel, and drag to move."
)
_NOTE = "coloured: a step is in flight or waits in a collective · grey: none · blank: not known"
_WHOLE = 0.98
"""The share of the run in sight from which on that counts as all of it."""

_MOST_LABELS = 16
_CELLS_IN_SIGHT = 200
"""With fewer cells than that in sight, a closer look shows more."""

_STEPS_AROUND = 20


Range = _lanes.Range


class StepTimeline:
    """Steps over time: a lane for input, one for the calls of `run`, and one for each device.

    Reads the columns of `folds.Timeline`. A step is in flight on a device from its
    call until it is ready there. Where more steps are in sight than there is room
    for, cells of time say for which share a step was in flight; else each step is
    a span of its own. The page sees to that by itself while the reader zooms. What
    is farther back than the newest steps has cells alone, unless the page asks
    `wanted()` for what to give to `zoom`, whenever `x_range` changes.

    Attributes:
      root: the figure.
      x_range: the range in sight, in seconds.
      source: one row for each lane: `lane`, `label`, `y`, `height`, `amount`.
      cells, under: a picture of each lane's cells; `under` are those that are hidden
        while single steps are shown in their place.
      spans: one row for each single span: `y`, `height`, `begin`, `end`, `sort` (a place
        in `_lanes.SORT_COLOURS`), `number` (of the step or batch).
    """

    def __init__(self, *, height: int = 380) -> None:
        """Makes an empty chart of `height` pixels."""
        self.source = _source("timeline_lanes", "lane", "label", "y", "height", "amount")
        self.cells = _source("timeline_cells", "image", "x", "y", "dw", "dh", "steps")
        self.under = _source("timeline_under", "image", "x", "y", "dw", "dh", "steps")
        self.spans = _source("timeline_spans", "y", "height", "begin", "end", "sort", "number")
        self._watched = _source("timeline_watched", "y", "height", "begin", "end")
        self._numbers = _source("timeline_numbers", "x", "y", "text", "room")
        self._about = _source("timeline_about", "begin", "end", "step_s", "lanes")
        self._note = _source("timeline_note", "y", "text")
        self._columns: TimelineColumns | None = None
        self._detail: TimelineColumns | None = None
        plot = new_figure(
            "Steps over time",
            x_label="since the run began (seconds, or h:mm:ss); right: share of the time known",
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
        self._empty = add_empty_text(plot, _EMPTY)

    def _draw_rows(self, plot: figure) -> None:
        nothing = HBar(y="y", left=0, right=0, height="height", fill_alpha=0, line_alpha=0)
        room = draw(plot, self.source, nothing)
        whole = draw(plot, self._about, Segment(x0="begin", y0=0, x1="end", y1=0, line_alpha=0))
        mapper = LinearColorMapper(palette=_lanes.palette(), low=0, high=3 * _lanes.LEVELS - 1)
        picture = Image(image="image", x="x", y="y", dw="dw", dh="dh", color_mapper=mapper)
        cells, under = draw(plot, self.cells, picture), draw(plot, self.under, picture)
        track = HBar(
            y="y", left="begin", right="end", height="height", fill_color=FAINT, fill_alpha=0.16,
            line_color=None,
        )  # fmt: skip
        watched = draw(plot, self._watched, track)
        sorts = LinearColorMapper(
            palette=_lanes.SORT_COLOURS, low=0, high=len(_lanes.SORT_COLOURS) - 1
        )
        span = HBar(
            y="y", left="begin", right="end", height="height", line_color=None,
            fill_color={"field": "sort", "transform": sorts},
        )  # fmt: skip
        spans = draw(plot, self.spans, span)
        number = Text(
            x="x", y="y", text="text", x_offset=4, text_color="#ffffff", text_font=value(FONT),
            text_font_size="11px", text_baseline="middle",
        )  # fmt: skip
        numbers = draw(plot, self._numbers, number)
        note = draw(plot, self._note, Scatter(x=0, y="y", size=1, fill_alpha=0, line_alpha=0))
        plot.add_layout(
            LabelSet(
                x=0, y="y", text="text", source=self._note, x_units="screen", text_color=INK,
                text_font=value(FONT), text_font_size="12px", text_baseline="middle",
            )
        )  # fmt: skip
        plot.x_range.renderers = [whole]
        plot.y_range = rows_range([room, note], 0.06)
        label_rows(plot, self.source, left="label", right="amount")
        add_zooming(plot)
        lanes = self.source
        plot.add_tools(cell_hover(cells, lanes), cell_hover(under, lanes), span_hover(spans, lanes))
        shown = {"under": under, "spans": spans, "watched": watched, "numbers": numbers}
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
        """The seconds in sight, as far as the page has told; None for the whole run."""
        begin, end = self.x_range.start, self.x_range.end
        now = 0.0 if self._columns is None else self._columns["now_s"]
        if begin is None or end is None or not np.isfinite([begin, end]).all() or begin >= end:
            return None
        return None if end - begin >= _WHOLE * now else (float(begin), float(end))

    def wanted(self) -> Range | None:
        """Returns the seconds of which `zoom` wants a closer look, None when it needs none."""
        seen, columns = self.visible, self._columns
        if seen is None or columns is None:
            return None
        low, high = seen
        if self._shows(columns, seen):
            return None
        if self._detail is not None and self._shows(self._detail, seen):
            return None
        # What was in flight at the edges was called before, and ready after them.
        step_s = columns["now_s"] / max(1, columns["step_count"])
        margin = max((high - low) / 2, _STEPS_AROUND * step_s)
        low, high = max(0.0, low - margin), min(columns["now_s"], high + margin)
        return (low, high) if low < high else None

    @staticmethod
    def _shows(columns: TimelineColumns, seen: Range) -> bool:
        """Whether these columns show a range as closely as the page can."""
        begin, width = columns["cell_start_s"], columns["cell_s"]
        inside = begin <= seen[0] and seen[1] <= begin + width * len(columns["steps"])
        fine = width <= (seen[1] - seen[0]) / _CELLS_IN_SIGHT
        return inside and (fine or _lanes.chosen_steps(columns, seen) != slice(0, 0))

    def update(self, columns: TimelineColumns) -> None:
        """Shows the newest columns."""
        self._columns = columns
        self.redraw()

    def zoom(self, columns: TimelineColumns | None) -> None:
        """Shows a part of the run more closely.

        Args:
          columns: what `folds.window` returned for the seconds that `wanted` named;
            None to go back to what `update` was given.
        """
        self._detail = columns
        self.redraw()

    def redraw(self) -> None:
        """Draws what is in sight now: call it when `x_range` has changed."""
        columns = self._columns
        if columns is None:
            return
        columns = _lanes.merged(columns)
        detail = self._fitting_detail(columns)
        near = columns if detail is None else detail
        chosen = _lanes.chosen_steps(near, self.visible)
        exact = _lanes.range_of(near, chosen)
        over: dict[bool, list[_lanes.Slice]] = {False: [], True: []}
        whole = _lanes.Slice(columns, 0, len(columns["steps"]))
        pieces = [whole]
        if detail is not None:
            begin = detail["cell_start_s"]
            there = (begin, begin + detail["cell_s"] * len(detail["steps"]))
            pieces = [piece for piece, inside in _lanes.cut(whole, there) if not inside]
            pieces.append(_lanes.Slice(detail, 0, len(detail["steps"])))
        for one in pieces:
            for part, inside in _lanes.cut(one, exact):
                over[inside].append(part)
        some = bool(columns["step_count"] or columns["devices"] or len(columns["waits"]))
        self.source.data = _lane_rows(columns) if some else _nothing(self.source)
        self.cells.data = _lanes.image_rows(over[False] if some else [])
        self.under.data = _lanes.image_rows(over[True] if some else [])
        spans = _lanes.span_rows(near, chosen, exact)
        self.spans.data = spans
        self._watched.data = _lanes.watched_rows(near, exact)
        self._numbers.data = _lanes.number_rows(spans)
        self._say(columns, np.asarray(near["begin_s"])[chosen], some=some)
        set_empty(self._empty, not some)

    def _fitting_detail(self, columns: TimelineColumns) -> TimelineColumns | None:
        """What `zoom` was given, while it has the same lanes and a part is in sight."""
        detail = self._detail
        if detail is None or self.visible is None:
            return None
        same = np.asarray(detail["busy"]).shape[1] == np.asarray(columns["busy"]).shape[1]
        return _lanes.merged(detail) if same else None

    def _say(self, columns: TimelineColumns, begins: Any, *, some: bool) -> None:
        lanes = len(columns["device"]) + _lanes.FIRST_DEVICE
        gaps = np.diff(begins)
        self._about.data = {
            "begin": [0.0] if some else [],
            "end": [max(columns["now_s"], 1e-3)] if some else [],
            "step_s": [float(np.median(gaps)) if len(gaps) else 1.0] if some else [],
            "lanes": [lanes] if some else [],
        }
        texts = [_NOTE] if some else []
        middles, _ = _lanes.places(lanes)
        top = 1.5 * middles[0] - 0.5 * middles[1]
        if columns["group"] > 1:
            texts.append(
                f"{count_text(columns['devices'])} devices in {len(columns['device'])} rows of "
                f"{columns['group']}: mean shares; a step ends when the last is ready"
            )
        self._note.data = {
            "y": [top + 0.064 * (top + lanes) * (line + 0.5) for line in range(len(texts))],
            "text": texts,
        }


def _source(name: str, *columns: str) -> ColumnDataSource:
    return ColumnDataSource(data={column: [] for column in columns}, name=name)


def _nothing(source: ColumnDataSource) -> dict[str, Any]:
    return {name: [] for name in source.data}


def _lane_rows(columns: TimelineColumns) -> dict[str, Any]:
    devices = [plain(name, 24) for name in columns["device"]]
    watched = np.asarray(columns["watched"])
    covered = (np.nan_to_num(columns["busy"]) * watched[:, None]).sum(axis=0)
    shares = covered / watched.sum() if watched.any() else np.full(len(devices), np.nan)
    texts = [share_text(share) if np.isfinite(share) else "" for share in shares]
    length = columns["now_s"] or 1.0
    told = [columns[name].sum() * columns["cell_s"] / length for name in ("waited", "calls")]
    middles, heights = _lanes.places(len(devices) + _lanes.FIRST_DEVICE)
    return {
        "lane": ["input", "python", *devices],
        "label": ["input", "python", *thinned(devices, _MOST_LABELS)],
        "y": middles,
        "height": heights,
        "amount": [*map(share_text, told), *thinned(texts, _MOST_LABELS)],
    }
