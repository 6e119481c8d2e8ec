"""Meshes as HTML: a cell a device, without scripts, for notebooks and pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

import numpy as np

from distlab.meshes import blocks
from distlab.meshes.blocks import Axes, Ints, Spec
from distlab.meshes.grids import Grid, grid_of
from distlab.text.colours import block_colours, ink_on
from distlab.text.png import data_uri, enlarge
from distlab.text.units import count_text

_MOST_LABELLED: Final = 64
"""Devices whose cells have a text; above, cells are small."""
_MOST_PIXELS: Final = 256
_TABLE: Final = "border-collapse:separate;border-spacing:{0}px;font:inherit;margin:2px 0"
_CELL: Final = "min-width:22px;padding:2px 4px;text-align:center;border:none"
_LABEL: Final = "padding:0 5px;text-align:center;border:none;background:none;opacity:.75"
_FAINT: Final = "opacity:.75"


class Picture(NamedTuple):
    """One drawing of a mesh.

    Attributes:
      title: What is drawn.
      facts: A line below it.
      axes: The mesh.
      colours: Colour of each position's cell, such as `"#0072b2"`.
      texts: Text of each position's cell, on small meshes.
      details: What a position holds or does; its cell's tooltip begins with its place.
    """

    title: str
    facts: str
    axes: Axes
    colours: Sequence[str]
    texts: Sequence[str]
    details: Sequence[str]


def picture_of_blocks(
    title: str, facts: str, axes: Axes, spec: Spec, *, name: str, shape: Sequence[int]
) -> Picture:
    """Returns a drawing of an array's blocks: equal colours and numbers are copies.

    Its facts end with how many blocks there are, and where their copies lie.
    """
    numbers = blocks.block_numbers(spec, axes).tolist()
    colours = block_colours(blocks.cuts(spec, axes))
    return Picture(
        title,
        f"{facts}; {_held_text(spec, axes)}",
        axes,
        [colours[n] for n in numbers],
        [str(n) for n in numbers],
        [f"{name}{part}" for part in blocks.part_texts(shape, spec, axes)],
    )


def _held_text(spec: Spec, axes: Axes) -> str:
    """Returns a sentence of how many blocks there are, and where their copies lie."""
    along = blocks.copied_along(spec, axes)
    copies = count_text(blocks.copies(spec, axes))
    count = math.prod(blocks.cuts(spec, axes))
    if count == 1:
        return f"a whole copy on each of {copies} devices" if along else "whole on one device"
    if not along:
        return f"{count_text(count)} blocks, one on each device"
    return f"{count_text(count)} blocks, {copies} copies of each along {' and '.join(along)}"


def pictures_html(pictures: Sequence[Picture], *, tooltips: bool = False) -> str:
    """Returns drawings side by side, in lines.

    Args:
      pictures: The drawings.
      tooltips: Whether cells have tooltips on large meshes, too. Notebooks would spoil their small
        cells, so those get an image.
    """
    drawn = "".join(_html(one, tooltips=tooltips) for one in pictures)
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 28px">{drawn}</div>'


def _html(picture: Picture, *, tooltips: bool) -> str:
    grid = grid_of(picture.axes)
    large = len(picture.colours) > _MOST_LABELLED
    places = np.arange(len(picture.colours))
    if large and len(set(picture.colours)) == 1:
        grid = grid._replace(titles=[])  # one colour says no more than the facts
    panels = []
    for panel, title in enumerate(grid.titles):
        table = grid.table(places, panel)
        if not large:
            drawn = _labelled(picture, grid, table)
        else:
            drawn = _cells(picture, table) if tooltips else _pixels(picture, table, title)
        panels.append(f"<div>{escape(title)}<br>{drawn}</div>" if title else drawn)
    facts = f"{picture.facts}. {_axes_of(grid)}" if large and panels else picture.facts
    return (
        f'<div style="max-width:350px;margin:10px 0 0"><b>{escape(picture.title)}</b>'
        f'<div style="{_FAINT}">{escape(facts)}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:4px 14px">{"".join(panels)}</div></div>'
    )


def _labelled(picture: Picture, grid: Grid, table: Ints) -> str:
    """Returns one panel as a table with texts and the labels of its rows and columns."""
    across = f'<td></td><td colspan="{grid.shape[1]}" style="{_LABEL}">{escape(grid.column_axis)}'
    heads = "".join(f'<td style="{_LABEL}">{label}</td>' for label in grid.column_labels)
    lines = [f"{across}</td>", f"<td></td>{heads}"]
    for label, places in zip(grid.row_labels, table.tolist(), strict=True):
        axis = escape(f"{grid.row_axis} {label}" if grid.row_axis else label)
        cells = "".join(_labelled_cell(picture, place) for place in places)
        lines.append(f'<td style="{_LABEL};text-align:right">{axis}</td>{cells}')
    body = "".join(f'<tr style="background:none">{line}</tr>' for line in lines)
    return f'<table style="{_TABLE.format(2)}">{body}</table>'


def _labelled_cell(picture: Picture, place: int) -> str:
    if place < 0:
        return "<td></td>"
    colour = picture.colours[place]
    style = f"{_CELL};background:{colour};color:{ink_on(colour)}"
    text = escape(picture.texts[place])
    return f'<td title="{_tooltip(picture, place)}" style="{style}">{text}</td>'


def _tooltip(picture: Picture, place: int) -> str:
    numbers = np.unravel_index(place, tuple(picture.axes.values()))
    at = ", ".join(f"{name} {n}" for name, n in zip(picture.axes, numbers, strict=True))
    return escape(f"{at}: {picture.details[place]}")


def _side(table: Ints) -> int:
    """Returns the pixels of a small cell, its gap included."""
    return min(10, max(4, _MOST_PIXELS // max(table.shape)))


def _cells(picture: Picture, table: Ints) -> str:
    """Returns one panel as small cells with tooltips."""
    side = _side(table) - 1
    body = "".join(
        f'<tr style="height:{side}px">'
        + "".join(
            f'<td title="{_tooltip(picture, n)}" bgcolor="{picture.colours[n]}">' if n >= 0
            else "<td>"
            for n in line
        )
        for line in table.tolist()
    )  # fmt: skip
    width = table.shape[1] * (side + 1)
    return (
        f'<table cellpadding="0" style="{_TABLE.format(1)};table-layout:fixed;width:{width}px">'
        f"{body}</table>"
    )


def _pixels(picture: Picture, table: Ints, title: str) -> str:
    """Returns one panel as an image with a square for each device."""
    rgba = [[*bytes.fromhex(colour[1:]), 255] for colour in picture.colours]
    side = _side(table)
    pixels = enlarge(np.array([*rgba, [0] * 4], np.uint8)[table], side, side)
    pixels[::side], pixels[:, ::side] = 0, 0  # gaps
    style = f"width:{pixels.shape[1]}px;max-width:none;margin:2px 0"
    about = escape(title or picture.title)
    return f'<img alt="{about}" src="{data_uri(pixels)}" style="{style}">'


def _axes_of(grid: Grid) -> str:
    """Returns which axes go down and to the right."""
    if not grid.row_axis:
        return f"{grid.column_axis} \u2192, {grid.shape[1]} a line"
    down = f"{grid.row_axis} \u2193 0 to {grid.row_labels[-1]}"
    return f"{down}, {grid.column_axis} \u2192 0 to {grid.column_labels[-1]}"
