"""`dl.placed`: rows, pictures and texts of arrays on meshes."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl

SMALL = AbstractMesh((4, 2), ("data", "model"))


def on(mesh: AbstractMesh, shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))


def test_rows_have_blocks_bytes_and_copies_of_each_array() -> None:
    state = {"w": on(SMALL, (64, 32), None, "model"), "b": on(SMALL, (8,)), "n": 3}
    placed = dl.placed({"params": state})
    w, b = placed["params/w"], placed["params/b"]
    assert len(placed) == 2
    assert (w.block, w.nbytes, w.bytes_per_device) == ((64, 16), 8192, 4096)
    assert (w.where, w.copies, w.copied_along) == ("P(None, 'model')", 4, ("data",))
    assert (b.copies, b.copied_along) == (8, ("data", "model"))
    assert placed.bytes_per_device == 4096 + 32


def test_slices_are_those_of_the_shards_of_an_array() -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    x = jax.device_put(np.zeros((8, 6)), NamedSharding(mesh, P("data", "model")))
    row = dl.placed(x)["array"]
    theirs = {shard.device: shard.index for shard in x.addressable_shards}
    for data in range(4):
        for model in range(2):
            mine = row.slices(data=data, model=model)
            index = theirs[mesh.devices[data, model]]
            assert [(s.start, s.stop) for s in mine] == [
                s.indices(n)[:2] for s, n in zip(index, x.shape, strict=True)
            ]
    with pytest.raises(dl.errors.ArgumentValueError, match="data 4 \u00d7 model 2"):
        row.slices(data=4)


def test_donated_arrays_and_arrays_without_mesh_are_shown() -> None:
    x = jax.device_put(np.zeros(8), NamedSharding(jax.make_mesh((8,), ("data",)), P("data")))
    x.delete()
    one = jax.device_put(np.zeros(4), jax.devices()[2])
    placed = dl.placed({"x": x, "one": one, "host": np.zeros(3), "key": jax.random.key(0)})
    assert placed["x"].bytes_per_device == 4
    assert [placed[name].where for name in ("one", "host", "key")] == ["CPU:2", "host", "CPU:0"]
    assert placed["host"].bytes_per_device == 0


def test_a_variable_is_shown_by_its_array() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        variable = dl.Variable(np.zeros((4, 2), np.float32))
    row = dl.placed({"v": variable})["v"]
    assert (row.axes, row.where, row.copies) == ({"replica": 2}, "P()", 2)


def test_traced_arrays_are_shown_on_explicit_axes_only() -> None:
    found = {}
    for kind in (AxisType.Explicit, AxisType.Auto):
        mesh = jax.make_mesh((8,), ("data",), axis_types=(kind,))
        x = jax.device_put(np.zeros((8, 2)), NamedSharding(mesh, P("data")))

        @jax.jit
        def look(x: jax.Array, kind: AxisType = kind) -> jax.Array:
            found[kind] = dl.placed(x)["array"].where
            return x

        look(x)
    assert found == {AxisType.Explicit: "P('data')", AxisType.Auto: "traced"}


def test_the_text_has_a_grid_for_each_division_and_a_table() -> None:
    state = {"a": on(SMALL, (8, 8), "data"), "b": on(SMALL, (8,), "data"), "c": on(SMALL, (4,))}
    lines = repr(dl.placed(state, "state")).splitlines()
    assert lines[0] == "state: 3 arrays of 304 B on a mesh of data 4 \u00d7 model 2, 88 B a device"
    assert lines[2] == "P('data'): 2 arrays, 72 B a device; 4 blocks, 2 copies of each along model"
    assert lines[5:9] == ["data 0 0 0", "     1 1 1", "     2 2 2", "     3 3 3"]
    assert [line.rpartition("  ")[2] for line in lines[-3:]] == [
        "2 along model",
        "whole, 8 along data, model",
        "2 along model",
    ]


def test_cells_of_a_small_mesh_name_the_part_they_hold() -> None:
    html = dl.placed({"w": on(SMALL, (64, 32), "data")})._repr_html_()
    assert len(re.findall("<td title=", html)) == 8
    assert 'title="data 3, model 1: w[48:64, 0:32]"' in html


def test_1024_devices_are_drawn_small_from_shapes() -> None:
    mesh = AbstractMesh((16, 16, 4), ("data", "fsdp", "model"))
    tree = {f"layer{n}": on(mesh, (4096, 4096), "fsdp", "model") for n in range(300)}
    placed = dl.placed(tree)
    assert placed.bytes_per_device == 300 * 4096 * 4096 * 4 // 64
    html, text = placed._repr_html_(), repr(placed)
    assert html.count("<img") == 4
    assert len(html) < 40_000
    assert "64 blocks, 16 copies of each along data" in text
    assert text.count("\n") < 60


def test_a_tree_without_arrays_has_no_picture() -> None:
    placed = dl.placed({"a": 1, "b": None})
    assert repr(placed) == "arrays: 0 arrays, 0 B"
    assert "<img" not in placed._repr_html_()
