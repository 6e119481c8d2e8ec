"""A program as it was counted for one mesh, and where other hardware would differ."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from distlab.events import Collective
from distlab.programs.collectives import wire_bytes
from distlab.programs.contents import ProgramContents
from distlab.simulation.bfloat16 import WrittenTypes

CHOSEN: Final = "chosen by XLA for CPU devices: GPUs and TPUs may move more or less"
SLICED: Final = "a sum of which each device keeps a slice: GPUs and TPUs may send half as much"
BFLOAT16: Final = "bfloat16, which CPU devices send as float32: counted at 2 bytes an element"
PERHAPS_BFLOAT16: Final = "float32 on CPU devices, perhaps bfloat16 elsewhere: half as much"
_SUMS: Final = ("all-reduce", "reduce-scatter")


class Count(NamedTuple):
    """The findings for one mesh."""

    axes: dict[str, int]
    topology: str = ""  # of TPUs
    name: str = ""
    contents: ProgramContents | None = None  # None where the mesh does not divide the arrays
    marks: tuple[tuple[str, ...], ...] = ()  # of each collective, how other hardware may differ
    undivided: str = ""  # the arrays, or JAX's message, then
    extrapolated_from: tuple[dict[str, int], ...] = ()


def in_order(contents: ProgramContents) -> ProgramContents:
    """Returns a program with its collectives in an order that is the same on other meshes."""
    return contents._replace(
        collectives=sorted(
            contents.collectives,
            key=lambda x: (x.kind, x.axes, x.asked, x.source, x.names, x.operand_bytes),
        )
    )


def on_cpu(contents: ProgramContents, lowered: Any) -> tuple[ProgramContents, Any]:
    """Returns a program that was compiled for CPU devices, and marks of its collectives."""
    types = WrittenTypes(lowered)
    collectives, marks = [], []
    for one in contents.collectives:
        written = types.operand_bytes(one)
        less = written is not None and written < one.operand_bytes
        collectives.append(_with_operand(one, written) if less else one)
        found = {
            CHOSEN: one.asked == "xla" and one.kind not in _SUMS,
            SLICED: one.kind == "all-reduce" and one.then_sliced > 0,
            BFLOAT16: less,
            PERHAPS_BFLOAT16: written is None,
        }
        marks.append(tuple(mark for mark, true in found.items() if true))
    return contents._replace(collectives=collectives), tuple(marks)


def _with_operand(one: Collective, size: int | None) -> Collective:
    size = size or 0
    dtype = "bf16" if 2 * size == one.operand_bytes else "bf16+f32"
    wire = wire_bytes(one.kind, size, one.group)
    return msgspec.structs.replace(one, operand_bytes=size, dtype=dtype, wire_bytes=wire)
