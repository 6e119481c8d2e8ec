"""A captured profile: when each device computed, waited for others and copied."""

from __future__ import annotations

import numpy as np

from distlab.charts._figure import (
    add_empty_text,
    add_hover,
    draw_bars,
    draw_track,
    label_rows,
    new_figure,
    new_source,
    range_of,
    set_empty,
    thinned,
)
from distlab.charts.theme import colour
from distlab.folds import CaptureColumns
from distlab.folds.arrays import Floats
from distlab.text.units import plain, share_text

ACTIVITIES = ("computing", "waiting for others", "copying")
COLOURS = (colour(0), colour(1), colour(2))
"""The colours of `ACTIVITIES`; idle time is blank."""

_MOST_SPANS = 300
"""Most spans drawn for a device; of more, the longest activity of each 300th is drawn."""

_EMPTY = (
    "No profile was captured yet.\nA recording to a file captures short ones automatically, "
    "and recording.capture() captures one."
)


class CapturedSpans:
    """The newest capture, with a row for each device.

    Attributes:
      root: The figure.
      source: One row for each device: `device`, `y`, and its labels.
      spans: One row for each span: `y`, `begin`, `end` (milliseconds), `what`, `length`,
        `device`, `color`.

    Example:
      >>> from distlab.charts import CapturedSpans
      >>> from distlab.events import Capture
      >>> from distlab.folds import Folds
      >>> folds = Folds()
      >>> folds.add([Capture(
      ...     time_ns=100, start_ns=0, strategy=0, steps=1, asked_by="user",
      ...     devices=["CPU:0", "CPU:1"], compute_ns=[90, 20], waiting_ns=[0, 70],
      ...     copy_ns=[0, 0], idle_ns=[10, 10], spans=[b"", b""], spans_left_out=0,
      ...     profile_bytes=0, cost_ns=0)])
      >>> chart = CapturedSpans()
      >>> chart.update(folds.columns("captures"))
      >>> chart.source.data["amount"]  # computing, and waiting for the other device
      ['90 % · 0 %', '20 % · 70 %']
    """

    def __init__(self, *, height: int = 300) -> None:
        """Makes an empty chart.

        Args:
          height: Height in pixels.
        """
        self.source = new_source("captured", "device", "label", "y", "amount", "length")
        self.spans = new_source(
            "captured_spans", "y", "begin", "end", "what", "length", "device", "color"
        )
        plot = new_figure(
            "What each device did in the newest capture",
            x_label="milliseconds since the capture began",
            height=height,
        )
        track = draw_track(plot, self.source, "length")
        drawn = draw_bars(plot, self.spans, "begin", "end")
        plot.y_range = range_of([track], 0.06)
        plot.x_range = range_of([track], 0)
        label_rows(plot, self.source, left="label", right="amount")
        plot.min_border_left = 64
        begin, length = ("from", "@begin{0.000} ms"), ("for", "@length")
        add_hover(plot, drawn, ("device", "@device"), ("does", "@what"), begin, length)
        self._empty = add_empty_text(plot, _EMPTY)
        self.root = plot

    def update(self, columns: CaptureColumns) -> None:
        """Shows the newest columns of `folds.Captures`.

        Args:
          columns: `Folds.columns("captures")`.
        """
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
    drawn = [longest_in_cells(rows, length) if len(rows) > _MOST_SPANS else rows for rows in spans]
    counts = [len(rows) for rows in drawn]
    rows = np.concatenate(drawn) if drawn else np.zeros((0, 3))
    activities = rows[:, 2].astype(int)
    return {
        "y": np.repeat(-np.arange(len(drawn), dtype=np.float64), counts),
        "begin": rows[:, 0],
        "end": rows[:, 1],
        "what": [ACTIVITIES[activity] for activity in activities],
        "length": [f"{end - begin:.3g} ms" for begin, end in rows[:, :2]],
        "device": [name for name, count in zip(devices, counts, strict=True) for _ in range(count)],
        "color": [COLOURS[activity] for activity in activities],
    }


def longest_in_cells(rows: Floats, length: float, cells: int = _MOST_SPANS) -> Floats:
    """Returns fewer spans: the longest activity in each of `cells` equal cells of time."""
    edges = np.linspace(0, length, cells + 1)
    shares = np.zeros((len(ACTIVITIES) + 1, cells))
    for activity in range(len(ACTIVITIES)):
        own = rows[rows[:, 2] == activity]
        ends = np.stack([own[:, 0], own[:, 1]], axis=1).ravel()
        lengths = own[:, 1] - own[:, 0]
        totals = np.cumsum(lengths)
        covered = np.stack([totals - lengths, totals], axis=1).ravel()
        if len(own):
            shares[activity] = np.diff(np.interp(edges, ends, covered))
    shares[-1] = np.diff(edges) - shares[:-1].sum(axis=0)
    most = shares.argmax(axis=0)
    first = np.flatnonzero(np.diff(most, prepend=-1))
    last = np.append(first[1:], cells)
    kept = most[first] < len(ACTIVITIES)
    return np.stack([edges[first], edges[last], most[first].astype(float)], axis=1)[kept]
