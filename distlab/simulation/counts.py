"""A program as it was counted for one mesh, and where other hardware would differ."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from distlab.events import Collective
from distlab.programs.collectives import KINDS, source_of, wire_bytes
from distlab.programs.contents import ProgramContents, unwrapped
from distlab.programs.flow import ARRAY, elements
from distlab.programs.hlo_text import parse

CHOSEN: Final = "chosen by XLA for CPU devices: GPUs and TPUs may move more or less"
SLICED: Final = "a sum of which each device keeps a slice: GPUs and TPUs may send half as much"
BFLOAT16: Final = "bfloat16, which CPU devices send as float32: counted at 2 bytes an element"
PERHAPS_BFLOAT16: Final = "float32 on CPU devices, perhaps bfloat16 elsewhere: half as much"
_SUMS: Final = ("all-reduce", "reduce-scatter")
_TYPE: Final = "bf16"


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
    types = _written_types(lowered)
    collectives, marks = [], []
    for one in contents.collectives:
        known = not types or "f32" not in one.dtype
        size = one.operand_bytes if known else _written_bytes(one, types)
        less = size is not None and size < one.operand_bytes
        collectives.append(_with_operand(one, size or 0) if less else one)
        found = {
            CHOSEN: one.asked == "xla" and one.kind not in _SUMS,
            SLICED: one.kind == "all-reduce" and one.then_sliced > 0,
            BFLOAT16: less,
            PERHAPS_BFLOAT16: size is None,
        }
        marks.append(tuple(mark for mark, true in found.items() if true))
    return contents._replace(collectives=collectives), tuple(marks)


def _with_operand(one: Collective, size: int) -> Collective:
    dtype = _TYPE if 2 * size == one.operand_bytes else f"{_TYPE}+f32"
    wire = wire_bytes(one.kind, size, one.group)
    return msgspec.structs.replace(one, operand_bytes=size, dtype=dtype, wire_bytes=wire)


def _written_types(lowered: Any) -> dict[tuple[str, str], list[tuple[int, str]]]:
    """Returns the sizes and types of arrays in a program before XLA optimises it.

    Keys are who asked for a collective, and the operation with its line, which both texts have: a
    collective's operands where the program calls it, else results. Empty without bfloat16.
    """
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    text = unwrapped(lowered).compiler_ir("hlo").get_hlo_module().to_string()
    module = parse(text if f"{_TYPE}[" in text else "")
    for body in module.computations.values():
        for one in body.values():
            if not one.metadata.get("op_name"):
                continue
            operands = [body[name].shape for name in one.operands if name in body]
            asked = one.opcode in KINDS
            shapes = " ".join(operands) if asked else one.shape
            key = "program" if asked else "xla", source_of(module, one)
            found.setdefault(key, []).extend(
                (elements(sizes), dtype) for dtype, sizes in ARRAY.findall(shapes)
            )
    return found


def _written_bytes(
    one: Collective, types: dict[tuple[str, str], list[tuple[int, str]]]
) -> int | None:
    """Returns the bytes of a collective's operands as written; None where it isn't known."""
    saved = 0
    for value in one.values:
        array, _, source = value.partition(" from ")
        dtype, sizes = ARRAY.findall(array)[0]
        if dtype != "f32":
            continue
        source, size = source or one.source, elements(sizes)
        while (one.asked, source) not in types and "/" in source.partition(" at ")[0]:
            source = source.partition("/")[2]  # functions of their own leave out their callers
        known = types.get((one.asked, source), [])
        found = {of for length, of in known if length == size} or {of for _, of in known}
        if not found or (len(found) > 1 and _TYPE in found):
            return None
        saved += 2 * size if found == {_TYPE} else 0
    return one.operand_bytes - saved if len(one.values) == one.operands else None
