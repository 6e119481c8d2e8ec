"""Which device sends how much to which other one, for each way to combine values."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Pairs = npt.NDArray[np.int64]

_RING: Final = (
    "XLA chooses the algorithm, and nothing measures it: drawn is a ring, which moves "
    "the fewest bytes."
)


class Phase(NamedTuple):
    """A part of an algorithm in which every pair does the same.

    Attributes:
      name: what happens in it.
      rounds: how often each pair does it, one time after the other.
      pairs: `(n, 2)`: who sends to whom.
      bytes_each: bytes that go over one pair in all rounds.
    """

    name: str
    rounds: int
    pairs: Pairs
    bytes_each: float


class Plan(NamedTuple):
    """How data moves.

    Attributes:
      phases: one after the other; none when nobody has to send.
      says: whether this is what runs, or what is the least.
    """

    phases: list[Phase]
    says: str

    @property
    def total(self) -> float:
        """Bytes that all devices send together."""
        return sum(phase.bytes_each * len(phase.pairs) for phase in self.phases)


def plan(kind: str, how: str, *, size: float, devices: int) -> Plan | None:
    """Returns how a reduction moves data.

    Args:
      kind: `"all-reduce"`, ... of a compiled program, or what was called from Python.
      how: the algorithm of a call from Python, such as `"to one device"`; empty
        inside a program.
      size: bytes of the operand on one device.
      devices: how many work together.

    Returns:
      The plan, None for an algorithm whose ways are not known.
    """
    ring = _shifted(devices)
    piece, passes = size / max(devices, 1), max(devices - 1, 0)
    phases: list[Phase]
    match how or kind:
        case "all-reduce" | "all reduce":
            names, says = ("reduce-scatter", "all-gather"), _RING
            phases = [Phase(name, passes, ring, passes * piece) for name in names]
        case "reduce-scatter":
            phases, says = [Phase("reduce-scatter", passes, ring, passes * piece)], _RING
        case "all-gather":
            phases, says = [Phase("all-gather", passes, ring, passes * size)], _RING
        case "all-to-all":
            says = "Each device sends its part to each other one: none can be spared."
            phases = [Phase("all-to-all", 1, _everyone(devices), piece)]
        case "collective-permute":
            says = (
                "Each device sends all it has to one other: which one is not recorded, "
                "drawn is the next."
            )
            phases = [Phase("permute", 1, ring, size)]
        case "to one device":
            says = (
                "That is what runs here: all copies go to one device, and the result stays there."
            )
            star = np.stack([np.arange(1, devices), np.zeros(passes, np.int64)], axis=1)
            phases = [Phase("to one device", 1, star, size)]
        case "hierarchical copy":
            says = "That is what runs here: pairs add up, then pairs of pairs; the sum stays there."
            phases = _tree(devices, size)
        case _:
            return None
    return Plan(phases, says)


def _shifted(devices: int) -> Pairs:
    """Each device to the next one; nobody sends when there is only one."""
    if devices < 2:
        return np.zeros((0, 2), np.int64)
    places = np.arange(devices)
    return np.stack([places, (places + 1) % devices], axis=1)


def _everyone(devices: int) -> Pairs:
    pairs = np.stack(np.divmod(np.arange(devices * devices), max(devices, 1)), axis=1)
    return pairs[pairs[:, 0] != pairs[:, 1]]


def _tree(devices: int, size: float) -> list[Phase]:
    phases: list[Phase] = []
    stride = 1
    while stride < devices:
        targets = np.arange(0, devices - stride, 2 * stride)
        pairs = np.stack([targets + stride, targets], axis=1)
        phases.append(Phase(f"round {len(phases) + 1}", 1, pairs, size))
        stride *= 2
    return phases
