"""Lanes of a coordinator's workers: the times in which each had a function."""

from __future__ import annotations

from typing import Final

import numpy as np
from bokeh.models import Scatter

from distlab.charts import _figure as fig
from distlab.charts.theme import FAINT, colour
from distlab.folds import CoordinationColumns
from distlab.text.units import duration_text, plain, share_text

_MOST_ROWS: Final = 64
_COLOURS: Final = {"done": colour(0), "failed": colour(5), "retried": colour(1)}
_MARKS: Final = {"lost": ("x", colour(5)), "returned": ("circle", colour(2))}


class ClosureLanes:
    """A row for each worker: the share of the time in which it had a function, and some of these.

    Attributes:
      root: The figure.
      source: One row for each worker: `worker`, `label`, `y`, `length`.
      cells: One row for each worker and cell of time in which it had a function.
      spans: One row for each function that is known singly.
      marks: One row for each moment at which a worker was lost or returned.
    """

    def __init__(self, *, height: int = 260) -> None:
        self.source = fig.new_source("closure_lanes", "worker", "label", "y", "length", "busy")
        self.cells = fig.new_source(
            "closure_cells", "y", "begin", "end", "alpha", "share", "worker"
        )
        self.spans = fig.new_source(
            "closure_spans", "y", "begin", "end", "color", "what", "took", "waited", "worker"
        )
        self.marks = fig.new_source("closure_marks", "y", "at", "marker", "color", "what")
        title, x_label = "When each worker had a function", "seconds since the run began"
        plot = fig.track_figure(title, self.source, x_label, height=height, thick=0.7, right="busy")
        shaded = fig.draw_bars(
            plot, self.cells, "begin", "end", height=0.7, color=colour(0), fill_alpha="alpha"
        )
        spans = fig.draw_bars(
            plot, self.spans, "begin", "end", height=0.4, line="color", fill_alpha=0.55
        )
        mark = Scatter(
            x="at", y="y", marker="marker", size=13, fill_color="color", line_color="color",
            line_width=3,
        )  # fmt: skip
        marked = fig.draw(plot, self.marks, mark)
        plot.min_border_left = 72
        worker, begin = ("worker", "@worker"), ("from", "@begin{0.000} s")
        took, waited = ("for", "@took"), ("waited", "@waited")
        fig.add_hover(plot, spans, worker, ("function", "@what"), begin, took, waited)
        fig.add_hover(plot, shaded, worker, ("busy", "@share"))
        fig.add_hover(plot, marked, ("event", "@what"), ("at", "@at{0.00} s"))
        self._empty = fig.add_empty_text(plot, "No functions scheduled.")
        self.root = plot

    def update(self, columns: CoordinationColumns) -> None:
        """Shows the newest columns of `folds.Coordination`."""
        workers = columns["worker"][:_MOST_ROWS]
        width = columns["cell_width_s"]
        now = max(columns["now_s"], 1e-3)
        self.source.data = {
            "worker": workers,
            "label": fig.thinned(workers),
            "y": -np.arange(len(workers), dtype=np.float64),
            "length": np.full(len(workers), now),
            "busy": fig.thinned([share_text(n) for n in columns["worker_busy"][:_MOST_ROWS]]),
        }
        cell, row = np.nonzero(columns["row_busy"] > 0)
        shares = columns["row_busy"][cell, row]
        self.cells.data = {
            "y": -row.astype(np.float64),
            "begin": cell * width,
            "end": np.minimum((cell + 1) * width, now),
            "alpha": 0.12 + 0.38 * shares,
            "share": [share_text(share) for share in shares],
            "worker": [workers[n] for n in row],
        }
        self._show_spans(columns)
        self._show_marks(columns)
        fig.set_empty(self._empty, not workers)

    def _show_spans(self, columns: CoordinationColumns) -> None:
        kept = [n for n, worker in enumerate(columns["span_worker"]) if 0 <= worker < _MOST_ROWS]
        begin, end = columns["span_begin_s"], columns["span_end_s"]
        outcome, waited = columns["span_outcome"], columns["span_waited_s"]
        self.spans.data = {
            "y": [-columns["span_worker"][n] for n in kept],
            "begin": [begin[n] for n in kept],
            "end": [end[n] for n in kept],
            "color": [_COLOURS.get(outcome[n], FAINT) for n in kept],
            "what": [
                f"{plain(columns['span_function'][n], 60)}: {plain(outcome[n])}" for n in kept
            ],
            "took": [duration_text(end[n] - begin[n]) for n in kept],
            "waited": [duration_text(waited[n]) for n in kept],
            "worker": [f"worker {columns['span_worker'][n]}" for n in kept],
        }

    def _show_marks(self, columns: CoordinationColumns) -> None:
        """Marks when workers were lost and came back; servers have no row."""
        rows = {name: place for place, name in enumerate(columns["worker"][:_MOST_ROWS])}
        names, states = columns["task_name"], columns["task_state"]
        kept = [n for n, name in enumerate(names) if name in rows]
        marks = [_MARKS.get(states[n], _MARKS["lost"]) for n in kept]
        whys = [f": {plain(why, 60)}" if why else "" for why in columns["task_reason"]]
        self.marks.data = {
            "y": [-rows[names[n]] for n in kept],
            "at": [columns["task_s"][n] for n in kept],
            "marker": [marker for marker, _ in marks],
            "color": [shade for _, shade in marks],
            "what": [f"{names[n]} {plain(states[n])}{whys[n]}" for n in kept],
        }
