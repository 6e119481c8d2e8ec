"""The transfers between devices of each reduction algorithm."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from distlab.folds.arrays import MOST_ENTRIES, Ints

_RING: Final = "Drawn as a ring: XLA's own algorithm is unknown."


class Phase(NamedTuple):
    """A part of an algorithm in which every pair transfers the same amount."""

    name: str
    rounds: int
    pairs: Ints
    bytes_each: float


class Plan(NamedTuple):
    """All transfers of a reduction."""

    phases: list[Phase]
    note: str

    @property
    def total(self) -> float:
        """Bytes that all devices send in all."""
        return sum(phase.bytes_each * len(phase.pairs) for phase in self.phases)


def plan(kind: str, how: str, *, size: float, devices: int) -> Plan | None:
    """Returns the transfers of a reduction, None of an unknown one or among too many devices."""
    if devices**2 > MOST_ENTRIES:
        return None
    ring = _shifted(devices)
    piece, passes = size / max(devices, 1), max(devices - 1, 0)
    phases: list[Phase]
    match how or kind:
        case "all-reduce" | "all reduce":
            names, note = ("reduce-scatter", "all-gather"), _RING
            phases = [Phase(name, passes, ring, passes * piece) for name in names]
        case "reduce-scatter":
            phases, note = [Phase("reduce-scatter", passes, ring, passes * piece)], _RING
        case "all-gather":
            phases, note = [Phase("all-gather", passes, ring, passes * size)], _RING
        case "all-to-all":
            note = "No transfer can be saved: each sends to each other."
            phases = [Phase("all-to-all", 1, _everyone(devices), piece)]
        case "collective-permute":
            note = "Each sends to one other; to which is not recorded."
            phases = [Phase("permute", 1, ring, size)]
        case "to one device":
            note = "As it runs here: all copies go to one device."
            star = np.stack([np.arange(1, devices), np.zeros(passes, np.int64)], axis=1)
            phases = [Phase("to one device", 1, star, size)]
        case "hierarchical copy":
            note = "As it runs here: pairs add up, then pairs of pairs."
            phases = _tree(devices, size)
        case _:
            return None
    return Plan(phases, note)


def _shifted(devices: int) -> Ints:
    """Returns pairs of each device and the next one; none for a single device."""
    if devices < 2:
        return np.zeros((0, 2), np.int64)
    places = np.arange(devices)
    return np.stack([places, (places + 1) % devices], axis=1)


def _everyone(devices: int) -> Ints:
    return np.argwhere(~np.eye(devices, dtype=bool))


def _tree(devices: int, size: float) -> list[Phase]:
    phases: list[Phase] = []
    stride = 1
    while stride < devices:
        targets = np.arange(0, devices - stride, 2 * stride)
        pairs = np.stack([targets + stride, targets], axis=1)
        phases.append(Phase(f"round {len(phases) + 1}", 1, pairs, size))
        stride *= 2
    return phases
