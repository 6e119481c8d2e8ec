"""The division of one global batch over the replicas, example by example."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, CustomJS, ImageRGBA, Quad, Range1d
from bokeh.plotting import figure

from distlab.charts import _figure as fig
from distlab.charts.sheet import Grid, as_pictures, fit, sheet
from distlab.charts.theme import FAINT, INK, colour
from distlab.folds import BatchDetail
from distlab.folds.arrays import Floats, Ints
from distlab.text.units import plain

_MOST_TILES = 2_048
_TILE = 8 / 9
_STRIP_TOP = 1.25
_STRIP_HEIGHT = 0.5
_EMPTY = (
    "No batches.\n"
    "Iterate over strategy's\n"
    "experimental_distribute_dataset(dataset)\n"
    "to see its batches here."
)

_AMOUNT_PIXELS = 92
_FULL, _LESS = INK, "#cc5a00"
_KEEP_SQUARE = """
const [columns, height, top] = ["columns", "height", "top"].map((name) => shape.get_column(name)[0])
if (plot.properties.inner_width.is_unset) return
const {inner_width, inner_height} = plot
const room = inner_width - amount
if (!(room > 0 && inner_height > 0)) return
const count = rows.get_length(), least = count <= 16 ? 15 * count / height : 0
const pixels = Math.max(room / columns, least)
const wanted = Math.ceil(pixels * (height + top) + plot.outer_height - inner_height)
if (count) plot.setv({height: Math.min(most, wanted)}, {sync: false})
const tile = Math.min(room / columns, inner_height / (height + top))
const tall = Math.min(pixels, inner_height / (height + top))
x_range.setv({start: -0.25, end: inner_width / tile - 0.25}, {sync: false})
y_range.setv({start: top - inner_height / tall, end: top}, {sync: false})
"""
"""Keeps tiles square and in the upper left corner at any width of the figure, with room for
each row's number of examples on their right, and the figure no higher than they need. Rows of
up to 16 replicas are as high as their texts, where that is higher than square."""


class BatchTiles:
    """The global batch as a strip, and below it the examples of each replica.

    A replica with fewer examples than its share has outlines instead of the others; one
    without examples has the word "empty".

    Attributes:
      root: The figure.
      source: One row for each replica: `y`, `name`, `size`, `text` and the sides of its
        block.
    """

    def __init__(self, *, height: int = 480) -> None:
        self.source = fig.new_source(
            "replicas",
            *("y", "name", "size", "text", "left", "right", "bottom", "top"),
            *("color", "state", "alpha"),
        )
        self._strip = fig.new_source(
            "strip", "y", "left", "right", "bottom", "top", "color", "name", "size"
        )
        self._tiles = fig.new_source(
            "examples",
            *("left", "right", "bottom", "top", "color", "alpha", "name", "index", "label"),
        )
        self._free = fig.new_source("free", "left", "right", "bottom", "top")
        self._image = fig.new_source("sheet", "image", "x", "y", "dw", "dh")
        self._labels = fig.new_source("batch_rows", "y", "name", "text", "right", "color", "style")
        self._shape = ColumnDataSource(
            data={"columns": [16.0], "height": [9.0], "top": [1.5]}, name="batch_shape"
        )
        plot = fig.new_figure(
            "The global batch, divided",
            height=height,
            x_range=Range1d(0, 16),
            y_range=Range1d(-9, 2),
        )
        plot.axis.visible = False
        plot.grid.visible = False
        self._draw(plot)
        fig.label_rows(plot, self._labels, left="name")
        plot.min_border_left = 92
        self._keep_square(plot)
        self._empty = fig.add_empty_text(plot, _EMPTY)
        self.root = plot

    def _draw(self, plot: figure) -> None:
        box = {"left": "left", "right": "right", "bottom": "bottom", "top": "top"}
        strip = fig.draw(plot, self._strip, Quad(**box, fill_color="color", line_color=None))
        marks = Quad(
            left=-0.2, right=-0.1, bottom="bottom", top="top", fill_color="color",
            fill_alpha="alpha", line_color=None,
        )  # fmt: skip
        fig.draw(plot, self.source, marks)
        free = Quad(**box, fill_color=None, line_color=FAINT, line_alpha=0.8, line_dash=[3, 3])
        fig.draw(plot, self._free, free)
        fig.draw(plot, self._image, ImageRGBA(image="image", x="x", y="y", dw="dw", dh="dh"))
        fill = {"fill_color": "color", "fill_alpha": "alpha", "line_color": "color"}
        tiles = fig.draw(
            plot,
            self._tiles,
            Quad(**box, **fill, line_alpha=0),
            hover=Quad(**box, **fill, line_width=2),
        )
        fig.draw_text(plot, self.source, "state", x=0.12, size="13px")
        fig.draw_text(
            plot, self._labels, x="right", color="color", x_offset=12, text_font_style="style"
        )
        fig.add_hover(plot, strip, ("part", "@name"), ("size", "@size examples"))
        index = ("index in the source", "@index")
        fig.add_hover(plot, tiles, ("label", "@label"), index, ("on", "@name"))

    def _keep_square(self, plot: figure) -> None:
        callback = CustomJS(
            args={
                "plot": plot, "shape": self._shape, "amount": _AMOUNT_PIXELS,
                "rows": self.source, "most": plot.height,
                "x_range": plot.x_range, "y_range": plot.y_range,
            },
            code=_KEEP_SQUARE,
        )  # fmt: skip
        plot.js_on_change("inner_width", callback)
        plot.js_on_change("inner_height", callback)
        self._shape.js_on_change("data", callback)

    def update(self, columns: BatchDetail | None) -> None:
        """Shows `Folds.batch()`, or nothing."""
        fig.set_empty(self._empty, columns is None)
        if columns is None:
            fig.clear(self.source, self._strip, self._tiles, self._free, self._image, self._labels)
            return
        sizes = np.asarray(columns["size"], np.int64)
        share = max(1, int(columns["nominal"]), int(sizes.max(initial=0)))
        most = max(1, min(share, _MOST_TILES // max(1, len(sizes))))
        grid = fit(len(sizes), most)
        names = [plain(name, 18) for name in columns["replica"]]
        shape = {"columns": [grid.columns + 0.3], "height": [grid.height + 0.1], "top": [1.5]}
        if shape != self._shape.data:
            self._shape.data = shape
        self._update_rows(columns, names, share, most, grid)
        self._update_strip(names, sizes, grid)
        self._update_tiles(columns, names, sizes, most, grid)

    def _update_rows(
        self, columns: BatchDetail, names: list[str], share: int, most: int, grid: Grid
    ) -> None:
        sizes = np.asarray(columns["size"], np.int64)
        replicas = np.arange(len(sizes))
        _, tops = grid.corner(replicas, np.zeros(len(sizes), np.int64))
        bottoms = tops - grid.lines + (1 - _TILE)
        texts = [size_text(int(size), share, most) for size in sizes]
        middles = (tops + bottoms) / 2
        self.source.data = {
            "y": middles,
            "name": names,
            "size": sizes,
            "text": texts,
            "left": np.zeros(len(sizes)),
            "right": np.full(len(sizes), grid.columns - 1 + _TILE),
            "bottom": bottoms,
            "top": tops,
            "color": [colour(replica) for replica in range(len(sizes))],
            "state": ["" if size else "empty" for size in sizes],
            "alpha": np.where(sizes > 0, 1.0, 0.35),
        }
        middle = _STRIP_TOP - _STRIP_HEIGHT / 2
        whole = "global batch", f"{sizes.sum()} examples"
        if columns["whole_size"] is not None:
            whole = "these rows", f"{sizes.sum()} of {columns['whole_size']} examples"
        less = [columns["uneven"] and bool(size < share) for size in sizes]
        self._labels.data = {
            "y": [middle, *middles],
            "name": [whole[0], *fig.thinned(names)],
            "text": [whole[1], *fig.thinned(texts)],
            "right": [grid.columns - 1 + _TILE] * (len(sizes) + 1),
            "color": [_FULL, *(_LESS if fewer else _FULL for fewer in less)],
            "style": ["normal", *("bold" if fewer else "normal" for fewer in less)],
        }
        self._free.data = _free_boxes(grid, sizes, min(share, most))

    def _update_strip(self, names: list[str], sizes: Ints, grid: Grid) -> None:
        whole = max(1, int(sizes.sum()))
        ends = np.cumsum(sizes) / whole * (grid.columns - 1 + _TILE)
        starts = np.concatenate([[0], ends[:-1]])
        gap = np.where(sizes > 0, 0.03, 0)
        self._strip.data = {
            "y": np.full(len(sizes), _STRIP_TOP - _STRIP_HEIGHT / 2),
            "left": starts,
            "right": np.maximum(starts, ends - gap),
            "bottom": np.full(len(sizes), _STRIP_TOP - _STRIP_HEIGHT),
            "top": np.full(len(sizes), _STRIP_TOP),
            "color": [colour(replica) for replica in range(len(sizes))],
            "name": names,
            "size": sizes,
        }

    def _update_tiles(
        self, columns: BatchDetail, names: list[str], sizes: Ints, most: int, grid: Grid
    ) -> None:
        replica = np.repeat(np.arange(len(sizes)), sizes)
        place = np.arange(len(replica)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        shown = np.flatnonzero(place < most)
        replica, place = replica[shown], place[shown]
        known = columns["known"][shown]
        index = columns["index"]
        labels = columns["label"]
        self._tiles.data = {
            **_boxes(grid, replica, place),
            "color": [colour(int(number)) for number in replica],
            "alpha": np.where(known, 0.0, 0.45),
            "name": [names[number] for number in replica],
            "index": ["none" if index is None else str(index[number]) for number in shown],
            "label": [plain(labels[number], 24) or "none" for number in shown],
        }
        self._image.data = _sheet(columns, shown[known], grid, replica[known], place[known])


def size_text(size: int, share: int, most: int | None = None) -> str:
    """Returns the text beside a replica's row, such as `"5 of 8"`."""
    text = f"{size}" if size == share else f"{size} of {share}"
    return text if most is None or size <= most else f"{text}, {most} drawn"


def _sheet(
    columns: BatchDetail, shown: Ints, grid: Grid, replica: Ints, place: Ints
) -> dict[str, list[object]]:
    if not columns["form"] or not len(shown):
        return {name: [] for name in ("image", "x", "y", "dw", "dh")}
    pictures = as_pictures(columns["pixels"][shown])
    image, width, height = sheet(pictures, grid, replica, place)
    return {"image": [image], "x": [0.0], "y": [-height], "dw": [width], "dh": [height]}


def _free_boxes(grid: Grid, sizes: Ints, share: int) -> dict[str, Floats]:
    """Returns a box for each free place of a partial replica, and one for an empty replica."""
    drawn = np.where(sizes > 0, sizes, share)[:, None]
    replica, place = np.nonzero(np.arange(share) >= drawn)
    if len(place) > _MOST_TILES // 2:
        replica, place = replica[:0], place[:0]
    boxes = _boxes(grid, replica, place)
    empty = np.flatnonzero(sizes == 0)
    whole = _boxes(grid, empty, np.zeros(len(empty), np.int64))
    whole["right"] = whole["left"] + grid.columns - 1 + _TILE
    whole["bottom"] = whole["bottom"] - (grid.lines - 1)
    return {name: np.concatenate([boxes[name], whole[name]]) for name in boxes}


def _boxes(grid: Grid, replica: Ints, place: Ints) -> dict[str, Floats]:
    left, top = grid.corner(replica, place)
    return {"left": left, "right": left + _TILE, "bottom": top - _TILE, "top": top}
