"""Meshes drawn as they are: the blocks of arrays, the parts of a batch, and busy devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from distlab.charts.theme import ramp
from distlab.folds import BatchDetail, DeviceColumns, PlacementColumns
from distlab.folds.devices import computing
from distlab.meshes import blocks
from distlab.meshes.pictures import Picture, picture_of_blocks, pictures_html
from distlab.text.bytes import bytes_text
from distlab.text.units import counted, plain, share_text

DRAWN: Final = ("placement_grids", "device_grids", "batch_grids")
_MOST_DIVISIONS: Final = 4
_MOST_LISTED: Final = 16
"""Devices on one axis that the rows of a chart show as well as a grid."""


def placement_pictures(columns: PlacementColumns) -> list[Picture]:
    """Returns a drawing for each way in which a mesh divides a function's arrays."""
    mesh = columns["mesh"]
    return [
        picture_of_blocks(
            plain(blocks.spec_text(one.spec), 80),
            f"{counted(one.arrays, 'array')}, {bytes_text(one.bytes)} a device",
            mesh,
            one.spec,
            name=plain(one.name),
            shape=one.shape,
        )
        for one in columns["divided"][:_MOST_DIVISIONS]
    ]


def device_pictures(columns: DeviceColumns) -> list[Picture]:
    """Returns a drawing of what each device of a mesh computes; none where rows show as much."""
    mesh, shares = columns["mesh"], np.clip(computing(columns["mean"], columns["computes"]), 0, 1)
    count = len(columns["device"])
    if sum(size > 1 for size in mesh.values()) < 2 and count <= _MOST_LISTED:
        return []
    if not mesh or len(shares) != count:
        return []
    texts = [share_text(share) for share in shares]
    word = "busy" if np.isnan(columns["computes"]).any() else "computing"
    details = [
        f"{plain(name, 24)}, {word} {text}"
        for name, text in zip(columns["device"], texts, strict=True)
    ]
    mean = share_text(float(shares.mean()))
    facts = f"Mean of the run on {counted(count, 'device')}: {word} {mean}"
    title = plain(blocks.axes_text(mesh), 80)
    return [Picture(title, facts, mesh, ramp(shares).tolist(), texts, details)]


def batch_pictures(detail: BatchDetail | None) -> list[Picture]:
    """Returns a drawing of the parts of a batch that was placed on a mesh."""
    if detail is None or not detail["shape"]:
        return []
    mesh, shape = detail["mesh"], detail["shape"]
    spec = blocks.full_spec(detail["spec"], len(shape))
    if not blocks.is_sound(spec, mesh):
        return []
    text, facts = plain(blocks.spec_text(spec), 80), f"an array of {shape}"
    return [picture_of_blocks(text, facts, mesh, spec, name="batch", shape=shape)]


def placement_rows(columns: PlacementColumns) -> dict[str, list[str]]:
    """Returns the drawing of placements as a table's only cell; no cell without a mesh."""
    return _rows(placement_pictures(columns))


def device_rows(columns: DeviceColumns) -> dict[str, list[str]]:
    """Returns the drawing of busy devices likewise."""
    return _rows(device_pictures(columns))


def batch_rows(detail: BatchDetail | None) -> dict[str, list[str]]:
    """Returns the drawing of a batch likewise."""
    return _rows(batch_pictures(detail))


def _rows(pictures: Sequence[Picture]) -> dict[str, list[str]]:
    return {"html": [pictures_html(pictures, tooltips=True)] if pictures else []}
