"""Blocks of arrays on meshes, and meshes as grids."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from distlab.meshes import blocks
from distlab.meshes.grids import grid_of
from distlab.text.colours import block_colours, ink_on

MESHES = ({"x": 8}, {"x": 4, "y": 2}, {"x": 2, "y": 2, "z": 2})
SPECS = (
    *(P(), P("x"), P(None, "x"), P("y", "x"), P(("x", "y")), P(("y", "x"), None)),
    *(P(None, ("y", "x")), P("x", "y", "z"), P(("z", "x"), None, "y"), P("z")),
)
SHAPE = (16, 24, 8)


@pytest.mark.parametrize("axes", MESHES, ids=str)
def test_blocks_equal_the_index_map_of_jax(axes: dict[str, int]) -> None:
    mesh = Mesh(np.array(jax.devices()).reshape(tuple(axes.values())), tuple(axes))
    for partition in SPECS:
        spec = blocks.full_spec(partition, len(SHAPE))
        if not {name for names in spec for name in names} <= axes.keys():
            continue
        sharding = NamedSharding(mesh, partition)
        theirs = sharding.devices_indices_map(SHAPE)
        block = blocks.block_shape(SHAPE, spec, axes)
        assert block == sharding.shard_shape(SHAPE)
        firsts = [[s.indices(n)[0] for s, n in zip(theirs[d], SHAPE, strict=True)]
                  for d in mesh.devices.flat]  # fmt: skip
        assert (blocks.blocks(spec, axes) * block).tolist() == firsts


def test_equal_numbers_of_blocks_are_copies() -> None:
    axes = {"data": 4, "model": 2}
    spec = blocks.full_spec([None, "model"], 2)
    assert blocks.block_numbers(spec, axes).tolist() == [0, 1] * 4
    assert blocks.copied_along(spec, axes) == ("data",)
    assert blocks.spec_text(spec) == "P(None, 'model')"
    assert blocks.full_spec([["data", "model"], []], 3) == (("data", "model"), (), ())


def test_two_axes_are_rows_and_columns() -> None:
    grid = grid_of({"data": 4, "model": 2})
    assert grid.table(np.arange(8), 0).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (grid.row_axis, grid.column_axis, grid.titles) == ("data", "model", [""])


def test_the_smallest_of_three_axes_is_a_panel_a_value() -> None:
    grid = grid_of({"data": 4, "layer": 2, "model": 3})
    assert grid.titles == ["layer 0", "layer 1"]
    assert grid.table(np.arange(24), 1)[1].tolist() == [9, 10, 11]


def test_axes_of_size_one_are_not_drawn() -> None:
    grid = grid_of({"data": 4, "seq": 1, "model": 2})
    assert (grid.shape, grid.row_axis, grid.column_axis) == ((4, 2), "data", "model")


@pytest.mark.parametrize(
    ("sizes", "shape", "panels"),
    [
        *(((1,), (1, 1), 1), ((8,), (1, 8), 1), ((1024,), (32, 32), 1), ((64, 16), (16, 64), 1)),
        *(((512, 2), (16, 32), 2), ((16, 16, 4), (16, 16), 4), ((2, 4, 8, 16), (64, 8), 2)),
    ],
)
def test_each_device_has_one_cell_of_a_grid(
    sizes: tuple[int, ...], shape: tuple[int, int], panels: int
) -> None:
    grid = grid_of(dict(zip("abcd", sizes, strict=False)))
    count = int(np.prod(sizes))
    assert (grid.shape, len(grid.titles)) == (shape, panels)
    cells = np.concatenate([grid.table(np.arange(count), n).ravel() for n in range(panels)])
    assert sorted(cells[cells >= 0].tolist()) == list(range(count))


def test_blocks_along_two_dimensions_have_colours_of_their_own() -> None:
    for cuts in ((8,), (16, 1), (4, 8), (16, 2, 2)):
        assert len(set(block_colours(cuts))) == np.prod(cuts)


def test_the_name_of_a_block_is_legible_on_its_colour() -> None:
    def luminance(colour: str) -> float:
        parts = [part / 255 for part in bytes.fromhex(colour[1:])]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot((0.2126, 0.7152, 0.0722), linear)) + 0.05

    for cuts in ((8,), (64, 1), (8, 16), (4, 4, 4)):
        for colour in block_colours(cuts):
            low, high = sorted((luminance(colour), luminance(ink_on(colour))))
            assert high / low >= 4.2, colour
