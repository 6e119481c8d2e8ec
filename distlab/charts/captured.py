"""What each device did in a captured profile: computing, waiting for others, copying."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, HBar, HoverTool

from distlab.charts._parts import (
    add_empty_text,
    draw,
    label_rows,
    new_figure,
    rows_range,
    set_empty,
    thinned,
)
from distlab.charts.theme import FAINT, colour
from distlab.folds import CaptureColumns
from distlab.folds.arrays import Floats
from distlab.text.units import plain, share_text

SORTS = ("computing", "waiting for others", "copying")
COLOURS = (colour(0), colour(1), colour(2))
"""The colours of `SORTS`; what is left blank is idle."""

_MOST_SPANS = 300
"""Spans drawn for a device; more of them are drawn as what prevails in each 300th."""

_EMPTY = (
    "No profile was taken yet.\nA recording to a file takes short ones by itself, "
    "and recording.capture() takes one."
)


class CapturedSpans:
    """The newest capture, a row for each device.

    Reads the columns of `folds.Captures`.

    Attributes:
      root: the figure.
      source: one row for each device: `device`, `y`, and what is written beside it.
      spans: one row for each span: `y`, `begin`, `end` (milliseconds), `what`,
        `length`, `device`, `color`.
    """

    def __init__(self, *, height: int = 300) -> None:
        """Makes an empty chart of `height` pixels."""
        rows = ("device", "label", "y", "amount", "length")
        self.source = ColumnDataSource(data={name: [] for name in rows}, name="captured")
        names = ("y", "begin", "end", "what", "length", "device", "color")
        self.spans = ColumnDataSource(data={name: [] for name in names}, name="captured_spans")
        plot = new_figure(
            "What each device did in the newest capture",
            x_label="milliseconds since the capture began",
            height=height,
        )
        whole = HBar(
            y="y", left=0, right="length", height=0.62, fill_color=FAINT, fill_alpha=0.16,
            line_color=None,
        )  # fmt: skip
        track = draw(plot, self.source, whole)
        span = HBar(
            y="y", left="begin", right="end", height=0.62, fill_color="color", line_color=None
        )
        drawn = draw(plot, self.spans, span)
        plot.y_range = rows_range([track], 0.06)
        plot.x_range = rows_range([track], 0)
        label_rows(plot, self.source, left="label", right="amount")
        plot.min_border_left = 64
        tooltips = [("@device", "@what"), ("from", "@begin{0.000} ms"), ("for", "@length")]
        plot.add_tools(HoverTool(renderers=[drawn], tooltips=tooltips))
        self._empty = add_empty_text(plot, _EMPTY)
        self.root = plot

    def update(self, columns: CaptureColumns) -> None:
        """Shows the newest columns."""
        devices = [plain(name, 24) for name in columns["device"]]
        length = 1e3 * (columns["end_s"] - columns["start_s"])
        self.source.data = {
            "device": devices,
            "label": thinned(devices),
            "y": -np.arange(len(devices), dtype=np.float64),
            "amount": thinned(
                [
                    f"{share_text(compute)} · {share_text(waiting)}"
                    for compute, waiting in zip(columns["compute"], columns["waiting"], strict=True)
                ]
            ),
            "length": np.full(len(devices), length),
        }
        self.spans.data = _rows(devices, columns["spans"], length)
        set_empty(self._empty, not devices)


def _rows(devices: list[str], spans: list[Floats], length: float) -> dict[str, Floats | list[str]]:
    drawn = [prevailing(rows, length) if len(rows) > _MOST_SPANS else rows for rows in spans]
    counts = [len(rows) for rows in drawn]
    rows = np.concatenate(drawn) if drawn else np.zeros((0, 3))
    sorts = rows[:, 2].astype(int)
    return {
        "y": np.repeat(-np.arange(len(drawn), dtype=np.float64), counts),
        "begin": rows[:, 0],
        "end": rows[:, 1],
        "what": [SORTS[sort] for sort in sorts],
        "length": [f"{end - begin:.3g} ms" for begin, end in rows[:, :2]],
        "device": [name for name, count in zip(devices, counts, strict=True) for _ in range(count)],
        "color": [COLOURS[sort] for sort in sorts],
    }


def prevailing(rows: Floats, length: float, cells: int = _MOST_SPANS) -> Floats:
    """Returns fewer spans: what prevails in each of so many even cells of time.

    Args:
      rows: `(n, 3)` begins, ends and sorts, in order.
      length: where the time ends; it begins at 0.
      cells: how many cells.

    Returns:
      Rows of the same form, neighbours of one sort joined; idle cells are left out.
    """
    edges = np.linspace(0, length, cells + 1)
    shares = np.zeros((len(SORTS) + 1, cells))
    for sort in range(len(SORTS)):
        own = rows[rows[:, 2] == sort]
        ends = np.stack([own[:, 0], own[:, 1]], axis=1).ravel()
        lengths = own[:, 1] - own[:, 0]
        totals = np.cumsum(lengths)
        covered = np.stack([totals - lengths, totals], axis=1).ravel()
        if len(own):
            shares[sort] = np.diff(np.interp(edges, ends, covered))
    shares[-1] = np.diff(edges) - shares[:-1].sum(axis=0)
    most = shares.argmax(axis=0)
    first = np.flatnonzero(np.diff(most, prepend=-1))
    last = np.append(first[1:], cells)
    kept = most[first] < len(SORTS)
    return np.stack([edges[first], edges[last], most[first].astype(float)], axis=1)[kept]
