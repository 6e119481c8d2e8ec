"""The transfers of one reduction, from device to device."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TypedDict

import numpy as np
from bokeh.models import (
    Arrow,
    Range1d,
    Rect,
    Scatter,
    Segment,
    VeeHead,
)
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts._transfers import Phase, Plan, plan
from distlab.charts.theme import INK, colour, ramp
from distlab.folds import ReductionColumns
from distlab.folds.arrays import MOST_ENTRIES, Floats
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, plain

_MOST_DRAWN = 16
"""Most devices drawn on a circle; more are drawn as a table of senders and receivers."""

_MOST_ROWS = 32
_MOST_PHASES = 4
_MOST_LETTERS = 51
"""Letters of a line that a phone has room for."""

_RADIUS = 0.11
_APART = 0.045
_EMPTY = (
    "No reduction chosen, or none.\n"
    "ctx.all_reduce(...) inside a step and strategy.reduce(...) can be chosen here."
)


class TrafficRow(TypedDict):
    """One kind of reduction, as `Traffic` draws it.

    Attributes:
      kind: `"all-reduce"`, ... of a compiled program, or what was called from Python.
      how: The algorithm of a call from Python, empty inside a program.
      where: `"inside FUNCTION"` or `"from Python"`.
      bytes: Bytes of the operand on one device.
      participants: How many devices take part.
      group: How many of them work together.
      along: The mesh axes along which they lie, empty when unknown.
      device: Names of the devices of one group, empty when unknown.
    """

    kind: str
    how: str
    where: str
    bytes: int
    participants: int
    group: int
    along: str
    device: list[str]


def traffic_row(
    reductions: ReductionColumns,
    place: int,
    *,
    devices: Sequence[str] = (),
) -> TrafficRow | None:
    """Returns one kind of reduction for `Traffic` to draw.

    Args:
      reductions: Columns of `folds.Reductions`.
      place: Index of the row.
      devices: Names of the devices that take part, in replica order.

    Returns:
      The reduction, None when there is no such row.

    Example:
      >>> from distlab.charts import traffic_row
      >>> from distlab.events import Reduction
      >>> from distlab.folds import Folds
      >>> folds = Folds()
      >>> folds.add([Reduction(
      ...     time_ns=0, strategy=0, verb="reduce", op="SUM", algorithm="to_one_device",
      ...     bytes=4_096, dtype="float32", participants=8, duration_ns=1_000)])
      >>> row = traffic_row(folds.columns("reductions"), 0)
      >>> row["kind"], row["how"], row["bytes"], row["participants"]
      ('reduce SUM', 'to one device', 4096, 8)
    """
    if place >= len(reductions["kind"]):
        return None
    inside, participants = reductions["inside"][place], reductions["participants"][place]
    group = reductions["group"][place] or participants
    members = reductions["members"][place] if len(devices) == participants else ()
    named = [devices[position] for position in members]
    return {
        "kind": reductions["kind"][place],
        "how": "" if inside else next(iter(reductions["how"][place]), ""),
        "where": plain(reductions["where"][place]),
        "bytes": reductions["bytes"][place],
        "participants": participants,
        "group": group,
        "along": plain(reductions["along"][place]) if len(named) == group else "",
        "device": named if len(named) == group else list(devices),
    }


class Traffic:
    """One reduction, drawn from device to device.

    Up to 16 devices lie on a circle, with an arrow from each sender to each receiver; more
    devices are a table of senders (rows) and receivers (columns).

    Attributes:
      root: The figure.
      source: One row for each arrow: ends, `sender`, `receiver`, `phase`, `bytes`, `text`.
      table: One row for each cell of the table: `x`, `y`, `sender`, `receiver`, `bytes`,
        `text`.
      notes: One row for each line of text: `text`, `color`.
    """

    def __init__(self, *, height: int = 420) -> None:
        ends = ("x0", "y0", "x1", "y1")
        what = ("sender", "receiver", "bytes", "text", "color")
        self.source = fig.new_source("traffic", *ends, *what, "phase")
        self.table = fig.new_source("traffic_table", "x", "y", "side", *what)
        self.notes = fig.new_source("traffic_notes", "y", "text", "color")
        self._devices = fig.new_source("traffic_devices", "x", "y", "size")
        self._names = fig.new_source("traffic_names", "x", "y", "name", "align")
        plot = fig.new_figure(
            "How one reduction moves data", height=height,
            x_range=Range1d(-2.4, 2.4), y_range=Range1d(-1.3, 2.3),
        )  # fmt: skip
        plot.axis.visible = False
        plot.grid.visible = False
        self.root = plot
        self._draw(plot)
        self._empty = fig.add_empty_text(plot, _EMPTY)

    def _draw(self, plot: figure) -> None:
        line = Segment(x0="x0", y0="y0", x1="x1", y1="y1", line_color="color", line_width=2)
        arrows = fig.draw(plot, self.source, line)
        head = VeeHead(size=9, fill_color="color", line_color="color")
        plot.add_layout(
            Arrow(
                end=head, source=self.source, x_start="x0", y_start="y0", x_end="x1", y_end="y1",
                line_color="color", line_width=2,
            )
        )  # fmt: skip
        box = Rect(x="x", y="y", width="side", height="side", fill_color="color", line_color=None)
        cells = fig.draw(plot, self.table, box)
        dot = Scatter(x="x", y="y", size="size", fill_color=INK, line_color=None)
        fig.draw(plot, self._devices, dot)
        fig.draw_text(plot, self._names, "name", text_align="align")
        fig.draw_text(plot, self.notes, x=-2.35, color="color")
        tooltips = [("from", "@sender"), ("to", "@receiver"), ("sent", "@text")]
        fig.add_hover(plot, arrows, *tooltips, ("in", "@phase"))
        fig.add_hover(plot, cells, *tooltips)

    def update(self, columns: TrafficRow | None) -> None:
        """Shows what `traffic_row` returned, or nothing."""
        fig.clear(self.source, self.table, self.notes, self._devices, self._names)
        fig.set_empty(self._empty, columns is None)
        if columns is None:
            return
        devices = columns["group"]
        found = plan(columns["kind"], columns["how"], size=columns["bytes"], devices=devices)
        self._show_notes(columns, found)
        if devices <= _MOST_DRAWN:
            self._show_circle(found, _names(columns, devices))
        elif found is not None:
            self._show_table(found, _names(columns, devices))

    def _show_notes(self, columns: TrafficRow, found: Plan | None) -> None:
        group, everyone = columns["group"], columns["participants"]
        size = bytes_text(columns["bytes"])
        lines = [(f"{plain(columns['kind'])} of {size} a device, {columns['where']}", INK)]
        devices = f"{count_text(everyone)} devices"
        if group < everyone:
            devices += f" in groups of {count_text(group)}"
            along = columns["along"]
            devices += f", along {along}: the first" if along else ": one of them"
        elif group == 1:
            devices = "One device takes part: nothing moves."
        elif group > _MOST_DRAWN:
            devices += f", in {-(-group // _per_row(group))} rows: rows send, columns receive"
        lines.append((devices, INK))
        if found is None:
            many = group**2 > MOST_ENTRIES
            what = "so many devices" if many else f'the algorithm "{plain(columns["how"])}"'
            lines.append(
                (f"The transfers of {what} are {'not drawn' if many else 'unknown'}.", INK)
            )
        elif group > 1:
            each = found.total / max(group, 1)
            where = "all" if group == everyone else "a group"
            who = "by each device" if _is_even(found, group) else "by a device on average"
            sent = f"{bytes_text(found.total)} sent in {where}, {bytes_text(each)} {who}"
            lines += [(sent, INK), (found.note, INK)]
            lines += [_phase_line(number, phase) for number, phase in enumerate(found.phases)]
            if len(found.phases) > _MOST_PHASES:
                others = len(found.phases) - _MOST_PHASES
                lines[-others:] = [(f"and {others} more rounds", INK)]
        lines = [(part, ink) for text, ink in lines for part in wrap(text, _MOST_LETTERS)]
        self.notes.data = {
            "y": [2.2 - 0.14 * line for line in range(len(lines))],
            "text": [text for text, _ in lines],
            "color": [ink for _, ink in lines],
        }

    def _show_circle(self, found: Plan | None, names: list[str]) -> None:
        places = _circle(len(names))
        outside = places * 1.17
        align = ["center" if abs(x) < 0.2 else "left" if x > 0 else "right" for x in outside[:, 0]]
        self._devices.data = {
            "x": places[:, 0], "y": places[:, 1], "size": [12] * len(names),
        }  # fmt: skip
        self._names.data = {
            "x": outside[:, 0],
            "y": outside[:, 1],
            "name": [
                name if one == "center" else fig.on_two_lines(name)
                for name, one in zip(names, align, strict=True)
            ],
            "align": align,
        }
        phases = found.phases if found else []
        rows: dict[str, list[object]] = {name: [] for name in self.source.data}
        for number, phase in enumerate(phases):
            middle = number - (len(phases) - 1) / 2
            for sender, receiver in phase.pairs.tolist():
                begin, end = _line(places[sender], places[receiver], middle * _APART)
                values = (*begin, *end, names[sender], names[receiver], phase.bytes_each,
                          bytes_text(phase.bytes_each), colour(number), phase.name)  # fmt: skip
                for name, one in zip(rows, values, strict=True):
                    rows[name].append(one)
        self.source.data = rows

    def _show_table(self, found: Plan, names: list[str]) -> None:
        per_row = _per_row(len(names))
        sent = matrix(found, len(names), per_row)
        rows = len(sent)
        side = 2.2 / rows
        starts = range(0, len(names), per_row)
        ends = [min(start + per_row, len(names)) - 1 for start in starts]
        texts = [
            names[start] if start == end else f"{names[start]} to {names[end]}"
            for start, end in zip(starts, ends, strict=True)
        ]
        sender, receiver = np.nonzero(sent)
        amounts = sent[sender, receiver]
        top = 1.0 if len(found.phases) < 3 else 0.85
        self.table.data = {
            "x": -1.1 + side * (receiver + 0.5),
            "y": top - side * (sender + 0.5),
            "side": np.full(len(sender), 0.94 * side),
            "sender": [texts[row] for row in sender],
            "receiver": [texts[row] for row in receiver],
            "bytes": amounts,
            "text": [bytes_text(amount) for amount in amounts],
            "color": ramp(0.15 + 0.8 * amounts / amounts.max()).tolist() if len(amounts) else [],
        }
        self._names.data = {
            "x": [-1.15] * rows,
            "y": [top - side * (row + 0.5) for row in range(rows)],
            "name": fig.thinned(texts, _MOST_DRAWN),
            "align": ["right"] * rows,
        }


def matrix(found: Plan, devices: int, per_row: int = 1) -> Floats:
    """Returns the bytes that each row of devices sends (rows) to each other (columns)."""
    rows = -(-devices // per_row)
    sent = np.zeros((rows, rows))
    for phase in found.phases:
        places = phase.pairs // per_row
        np.add.at(sent, (places[:, 0], places[:, 1]), phase.bytes_each)
    return sent


def _per_row(devices: int) -> int:
    return -(-devices // _MOST_ROWS)


def _is_even(found: Plan, devices: int) -> bool:
    sent = np.zeros(devices)
    for phase in found.phases:
        np.add.at(sent, phase.pairs[:, 0], phase.bytes_each)
    return bool(np.ptp(sent) == 0) if devices else True


def _phase_line(number: int, phase: Phase) -> tuple[str, str]:
    rounds = f"{phase.rounds} rounds" if phase.rounds > 1 else "1 round"
    arrows = count_text(len(phase.pairs))
    amount = bytes_text(phase.bytes_each)
    return f"\u25ac {phase.name}: {rounds}, {arrows} \u00d7 {amount}", colour(number)


def _names(columns: TrafficRow, devices: int) -> list[str]:
    if len(columns["device"]) == devices:
        return [plain(name, 24) for name in columns["device"]]
    return [f"device {place}" for place in range(devices)]


def _circle(devices: int) -> Floats:
    """Returns places on a circle, the first on top, clockwise."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(devices) / max(devices, 1)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _line(begin: Floats, end: Floats, aside: float) -> tuple[list[float], list[float]]:
    """Returns the ends of a line between two devices, shortened and shifted to the side."""
    along = (end - begin) / max(float(np.hypot(*(end - begin))), 1e-9)
    shift = np.array([-along[1], along[0]]) * aside
    return (begin + along * _RADIUS + shift).tolist(), (end - along * _RADIUS + shift).tolist()
