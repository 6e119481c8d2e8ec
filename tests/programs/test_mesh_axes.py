"""Replica groups in the forms that XLA writes become axes of the mesh, by position."""

from __future__ import annotations

import pytest

from distlab.programs.mesh_axes import Along, along_groups, along_pairs, fills, groups_of

MESH = {"x": 4, "y": 2}


@pytest.mark.parametrize(
    ("written", "axes"),
    [
        ("{{0,2,4,6},{1,3,5,7}}", ("x",)),
        ("{{0,1},{2,3},{4,5},{6,7}}", ("y",)),
        ("[2,4]<=[4,2]T(1,0)", ("x",)),
        ("[4,2]<=[8]", ("y",)),
        ("[1,8]<=[8]", ("x", "y")),
        ("{}", ("x", "y")),
        ("mesh['x'=4,'y'=2] {'x'}", ("x",)),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", ("y",)),
        ("mesh['y'=4,'x'=2] {'x'}", ("y",)),  # names of the text mean nothing
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0','axis_1'}", ("x", "y")),
        ("mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'c'}", ("x",)),
        ("mesh['a'=2,'b'=1,'c'=4], device_ids=([4,2]T(1,0)) {'a'}", ("y",)),
        ("mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'b'}", ("x",)),
        ("mesh['a'=8] {'a':(1)4}", ("x",)),
        ("mesh['a'=8] {'a':(4)2}", ("y",)),
    ],
)
def test_each_written_form_gives_whole_axes(written: str, axes: tuple[str, ...]) -> None:
    groups = groups_of(written, 8)
    assert groups is not None
    along = along_groups(groups, MESH)
    assert along == Along(axes)
    assert fills(along, groups.shape[1], MESH)


@pytest.mark.parametrize(
    ("written", "axes", "group"),
    [
        ("mesh['a'=8] {'a':(2)2}", ("x",), 2),
        ("mesh['a'=8] {'a':(1)2,'a':(4)2}", ("x", "y"), 4),
        ("{{0,1,2},{3,4},{5}}", ("x", "y"), 3),
    ],
)
def test_parts_of_axes_are_known_as_parts(written: str, axes: tuple[str, ...], group: int) -> None:
    groups = groups_of(written, 8)
    assert groups is not None
    along = along_groups(groups, MESH)
    assert along == Along(axes)
    assert groups.shape[1] == group
    assert not fills(along, group, MESH)


def test_groups_of_other_devices_and_unknown_forms_have_no_axes() -> None:
    sixteen = groups_of("[1,16]<=[16]", 16)
    assert sixteen is not None
    assert along_groups(sixteen, MESH) is None
    assert groups_of("a form of tomorrow", 8) is None


@pytest.mark.parametrize(
    ("pairs", "along"),
    [
        ([(0, 2), (2, 4), (4, 6), (1, 3), (3, 5), (5, 7)], Along(("x",), 1)),  # a pipeline's
        ([(0, 6), (2, 0), (4, 2), (6, 4)], Along(("x",), -1)),
        ([(0, 1), (1, 0)], Along(("y",), 1)),
        ([(0, 3), (3, 0)], Along(("x", "y"))),
        ([(0, 2), (2, 6)], Along(("x",))),
        ([(0, 0), (1, 1)], Along()),
    ],
)
def test_pairs_give_their_axis_and_shift(pairs: list[tuple[int, int]], along: Along) -> None:
    assert along_pairs(pairs, MESH) == along
