"""A captured profile: when each device computed, waited for others and copied."""

from __future__ import annotations

import numpy as np

from distlab.charts import _figure as fig
from distlab.charts.devices import in_cells
from distlab.charts.theme import colour
from distlab.folds import CaptureColumns
from distlab.folds.arrays import Floats
from distlab.text.units import plain, share_text

ACTIVITIES = ("computing", "waiting for others", "copying")
COLOURS = (colour(0), colour(1), colour(2))
"""The colours of `ACTIVITIES`; idle time is blank."""

_TITLE = "What each device did in a capture"
_MOST_SPANS = 300
"""Most spans drawn for a device; of more, the longest activity of each 300th is drawn."""

_EMPTY = (
    "No profiles.\nA recording to a file takes short ones automatically; "
    "recording.capture() takes one."
)


class CapturedSpans:
    """A capture, with a row for each device.

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
        self.source = fig.new_source("captured", "device", "label", "y", "amount", "length")
        self.spans = fig.new_source(
            "captured_spans", "y", "begin", "end", "what", "length", "device", "color"
        )
        title, x_label = _TITLE, "milliseconds since the capture began"
        plot = fig.track_figure(
            title, self.source, x_label, height=height, thick=0.62, right="amount"
        )
        drawn = fig.draw_bars(plot, self.spans, "begin", "end")
        plot.min_border_left = 64
        begin, length = ("from", "@begin{0.000} ms"), ("for", "@length")
        fig.add_hover(plot, drawn, ("device", "@device"), ("does", "@what"), begin, length)
        self._empty = fig.add_empty_text(plot, _EMPTY)
        self.root = plot

    def update(self, columns: CaptureColumns) -> None:
        """Shows `Folds.capture(...)`."""
        devices = [plain(name, 24) for name in columns["device"]]
        length = 1e3 * (columns["end_s"] - columns["start_s"])
        self.source.data = {
            "device": devices,
            "label": fig.thinned(devices),
            "y": -np.arange(len(devices), dtype=np.float64),
            "amount": fig.thinned(
                [
                    f"{share_text(compute)} · {share_text(waiting)}"
                    for compute, waiting in zip(columns["compute"], columns["waiting"], strict=True)
                ]
            ),
            "length": np.full(len(devices), length),
        }
        self.spans.data = _rows(devices, columns["spans"], length)
        fig.set_empty(self._empty, not devices)


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
        begins, ends, _ = rows[rows[:, 2] == activity].T
        if len(begins):
            shares[activity] = in_cells(edges, begins, ends, ends - begins)
    shares[-1] = np.diff(edges) - shares[:-1].sum(axis=0)
    most = shares.argmax(axis=0)
    first = np.flatnonzero(np.diff(most, prepend=-1))
    last = np.append(first[1:], cells)
    kept = most[first] < len(ACTIVITIES)
    return np.stack([edges[first], edges[last], most[first].astype(float)], axis=1)[kept]
