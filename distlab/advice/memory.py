"""A device that holds far more than the others.

From what the platform's allocators say; where they don't tell (CPU), from where
variables were placed. It must hold twice as much as the middle one, and 16 MB more.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from distlab.advice._finding import advice
from distlab.events import Advice
from distlab.folds import EvidenceColumns
from distlab.text.bytes import bytes_text

CAUSE: Final = "memory_imbalance"

_TWICE: Final = 2.0
_LEAST_BYTES: Final = 16 << 20


def find(columns: EvidenceColumns) -> list[Advice]:
    """Finds devices that hold too much; columns as `folds.Evidence` has them."""
    found = []
    for strategy, (_, devices) in columns["strategies"].items():
        memory = columns["memory"].get(strategy)
        source = "memory is in use"
        if memory is None:
            memory = _placed(columns, strategy, devices)
            source = "variables lie"
        one = _of(devices, memory, source)
        found += [one] if one is not None else []
    return found


def _placed(columns: EvidenceColumns, strategy: int, devices: list[str]) -> list[int]:
    held: Counter[str] = Counter()
    for placement in columns["placements"]:
        if placement.strategy == strategy:
            for device, bytes_ in zip(placement.devices, placement.bytes_per_device, strict=False):
                held[device] += bytes_
    return [held[device] for device in devices]


def _of(devices: list[str], memory: list[int], source: str) -> Advice | None:
    if len(memory) < 2 or len(memory) != len(devices):
        return None
    held = np.array(memory, float)
    fullest = int(held.argmax())
    others = float(np.median(np.delete(held, fullest)))
    most = float(held[fullest])
    if most < _TWICE * others or most - others < _LEAST_BYTES:
        return None
    device = devices[fullest]
    return advice(
        CAUSE,
        device,
        f"On {device} {bytes_text(most)} of {source}, on the other devices {bytes_text(others)}.",
        "Divide what lies there over the devices, or mirror less: it is the first device to run "
        "out of memory.",
        evidence={"bytes": most, "others_bytes": others},
        page="placement",
        share=(most - others) / most,
    )
