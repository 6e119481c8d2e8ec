"""A mesh's devices as cells in rows and columns, for texts, notebooks and charts."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from distlab.meshes.blocks import Axes, Ints

_LINE: Final = 32
"""Cells of a line that continues in the next one."""
_MOST_ACROSS: Final = 64
_MOST_PANELS: Final = 8


class Grid(NamedTuple):
    """The place of each device's cell, and the labels around the cells.

    Attributes:
      rows: Row of each position within its panel, from 0 at the top.
      columns: Column of each position within its panel.
      panels: Number of the panel that has it.
      shape: Rows and columns of each panel.
      titles: One for each panel, such as `"layer 2"`; empty for a single one.
      row_axis: Name of the axis that goes down, empty for none.
      row_labels: One label a row, empty where a line continues.
      column_axis: Name of the axis that goes to the right.
      column_labels: One label a column.
    """

    rows: Ints
    columns: Ints
    panels: Ints
    shape: tuple[int, int]
    titles: list[str]
    row_axis: str
    row_labels: list[str]
    column_axis: str
    column_labels: list[str]

    def table(self, values: Ints, panel: int) -> Ints:
        """Returns values of the positions as `(rows, columns)` of a panel; -1 in free cells."""
        cells = np.full(self.shape, -1, np.int64)
        here = self.panels == panel
        cells[self.rows[here], self.columns[here]] = values[here]
        return cells


def grid_of(axes: Axes) -> Grid:
    """Returns the cells of a mesh.

    Two axes are rows and columns; of three, the smallest is a panel a value; of more, the others
    are folded into the rows. An axis of more than 64 beside a short one goes on in further lines.
    """
    sizes = tuple(axes.values())
    names = [name for name, size in axes.items() if size > 1] or list(axes)[:1]
    places = np.indices(sizes).reshape(len(sizes), math.prod(sizes))
    at = dict(zip(axes, places, strict=True))
    panel = ""
    if len(names) > 2 or (len(names) == 2 and _is_long([axes[name] for name in names])):
        panel = min(names, key=lambda name: axes[name])
        names.remove(panel)
    panels = at[panel] if panel else np.zeros(math.prod(sizes), np.int64)
    titles = [f"{panel} {value}" for value in range(axes[panel])] if panel else [""]
    if len(names) < 2:
        return _lines(names[0], at[names[0]], axes[names[0]], panels, titles)
    across = names.pop(1)
    if axes[names[0]] > _LINE and len(names) == 1 and axes[across] < axes[names[0]]:
        names, across = [across], names[0]  # wide rather than tall
    rows, labels = np.zeros(math.prod(sizes), np.int64), [""]
    for name in names:
        rows = rows * axes[name] + at[name]
        labels = [
            f"{before}, {value}" if before else str(value)
            for before in labels
            for value in range(axes[name])
        ]
    columns = [str(value) for value in range(axes[across])]
    shape = (len(labels), len(columns))
    down = ", ".join(names)
    return Grid(rows, at[across], panels, shape, titles, down, labels, across, columns)


def _is_long(sizes: list[int]) -> bool:
    return max(sizes) > _MOST_ACROSS and min(sizes) <= _MOST_PANELS


def _lines(name: str, place: Ints, count: int, panels: Ints, titles: list[str]) -> Grid:
    """Returns the cells of one axis: a line, or several lines of equal lengths."""
    across = count if count <= _MOST_ACROSS // 2 else _LINE
    lines = -(-count // across)
    return Grid(
        place // across,
        place % across,
        panels,
        (lines, across),
        titles,
        "",
        [str(line * across) if lines > 1 else "" for line in range(lines)],
        name,
        [str(value) if lines == 1 else f"+{value}" for value in range(across)],
    )
