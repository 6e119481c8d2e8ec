"""A device that holds far more than the others.

Sizes are those that the platform's allocators report, or on CPU devices, where they report
none, those of all strategies' variables. The device must hold more than twice the
median of the others, and 16 MB more. Parameter servers' devices are compared with each other.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from distlab.advice._columns import line_of_most
from distlab.advice._texts import new_advice
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.text.bytes import bytes_text

CAUSE: Final = "memory_imbalance"

_TWICE: Final = 2.0
_LEAST_BYTES: Final = 16 << 20

_REMEDY: Final = (
    "Divide the variables that it has alone over the devices, or keep them as NumPy arrays on the "
    "host: it is the first device to run out of memory."
)
_SERVERS_REMEDY: Final = (
    "Divide its large variables over the parameter servers: "
    "ParameterServerStrategy(..., variable_partitioner=dl.experimental.partitioners."
    "MinSizePartitioner(max_shards={}))."
)


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds devices that hold too much, in columns of `folds.Evidence`."""
    found: dict[str, Advice] = {}
    for strategy, (_, devices) in columns["strategies"].items():
        memory = columns["memory"].get(strategy)
        what = "memory in use"
        if memory is None:
            memory = _placed(columns, devices)
            what = "variables"
        advice = _imbalance(columns, devices, memory, what, _REMEDY)
        if advice is not None:
            found.setdefault(advice.subject, advice)
    servers = _servers(columns)
    remedy = _SERVERS_REMEDY.format(len(servers))
    advice = _imbalance(columns, servers, _placed(columns, servers), "variables", remedy)
    if advice is not None:
        found.setdefault(advice.subject, advice)
    return list(found.values())


def _servers(columns: EvidenceColumns) -> list[str]:
    """Returns the devices of the parameter servers that hold variables: no strategy has them."""
    placements = columns["placements"]
    return sorted({one.devices[0] for one in placements if one.server is not None and one.devices})


def _placed(columns: EvidenceColumns, devices: list[str]) -> list[int]:
    """Returns the bytes of all strategies' variables on these devices."""
    held: Counter[str] = Counter()
    for placement in columns["placements"]:
        for device, bytes_ in zip(placement.devices, placement.bytes_per_device, strict=False):
            held[device] += bytes_
    return [held[device] for device in devices]


def _made_more(columns: EvidenceColumns, device: str, devices: list[str]) -> str:
    """Returns the line whose variables hold most of what a device has more than the others."""
    lines, sizes = [], []
    for placement in columns["placements"]:
        held = dict(zip(placement.devices, placement.bytes_per_device, strict=False))
        others = [held.get(other, 0) for other in devices if other != device]
        lines.append(placement.source)
        sizes.append(float(held.get(device, 0) - np.median(others)))
    return line_of_most(lines, sizes)


def _imbalance(
    columns: EvidenceColumns, devices: list[str], memory: list[int], what: str, remedy: str
) -> Advice | None:
    if len(memory) < 2 or len(memory) != len(devices):
        return None
    held = np.array(memory, float)
    fullest = int(held.argmax())
    others = float(np.median(np.delete(held, fullest)))
    most = float(held[fullest])
    if most <= _TWICE * others or most - others < _LEAST_BYTES:
        return None
    device = devices[fullest]
    return new_advice(
        CAUSE,
        device,
        f"{device} has {bytes_text(most)} of {what}, the other devices have {bytes_text(others)}.",
        remedy,
        evidence={"bytes": most, "others_bytes": others},
        page="placement",
        source=_made_more(columns, device, devices),
        share=(most - others) / most,
    )
