"""Layouts: the array, copies and partition of each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from distlab.devices.layouts import (
    ROWS,
    WHOLE,
    Divided,
    Layout,
    OnePerReplica,
    OnOneDevice,
    Replicated,
)
from distlab.devices.mesh import ReplicaMesh, replica_mesh
from distlab.devices.pieces import first_piece, pieces


@pytest.fixture
def mesh() -> ReplicaMesh:
    return replica_mesh(tuple(jax.devices()[:4]))


def layouts(mesh: ReplicaMesh) -> list[Layout]:
    one = OnOneDevice(mesh.devices[2])
    return [Replicated(mesh), OnePerReplica(mesh), Divided(mesh, axis=0), one]


def test_every_copy_holds_the_placed_value_on_its_own_device(mesh: ReplicaMesh) -> None:
    value = jnp.arange(4.0)
    for layout in layouts(mesh):
        copies = layout.copies(layout.place(value))
        assert list(copies) == ([0] if layout.one_copy else [0, 1, 2, 3])
        for replica, copy in copies.items():
            np.testing.assert_array_equal(copy, value)
            home = mesh.devices[2 if layout.one_copy else replica]
            assert copy.devices() == {home}


def test_replacing_a_copy_leaves_the_others_alone(mesh: ReplicaMesh) -> None:
    for layout in (Replicated(mesh), OnePerReplica(mesh)):
        array = layout.with_copy(layout.place(jnp.zeros(2)), 3, jnp.ones(2))
        sums = [float(copy.sum()) for copy in layout.copies(array).values()]
        assert sums == [0, 0, 0, 2]


def test_replacing_a_copy_of_a_divided_value_replaces_its_part(mesh: ReplicaMesh) -> None:
    layout = Divided(mesh, axis=1)
    array = layout.with_copy(layout.place(jnp.zeros((2, 8))), 3, jnp.ones((2, 8)))
    np.testing.assert_array_equal(array, [[0] * 6 + [1] * 2] * 2)
    assert [piece.shape for _, piece in pieces(array)] == [(2, 2)] * 4
    assert layout.part_shape((2, 8)) == (2, 2)
    assert layout.axes(2) == [[], ["replica"]]


def test_partitions_cut_an_array_into_blocks_and_back() -> None:
    row = np.arange(6).reshape(1, 6)
    assert ROWS.local(row).shape == (6,)
    np.testing.assert_array_equal(ROWS.block(ROWS.local(row)), row)
    assert WHOLE.block(WHOLE.local(row)) is row


def test_pieces_come_with_the_number_of_their_replica(mesh: ReplicaMesh) -> None:
    rows = jax.device_put(np.arange(8).reshape(4, 2), mesh.split)
    assert [(replica, piece.tolist()) for replica, piece in pieces(rows)] == [
        (replica, [[2 * replica, 2 * replica + 1]]) for replica in range(4)
    ]
    assert first_piece(rows).tolist() == [[0, 1]]
