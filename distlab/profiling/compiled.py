"""The collectives and costs of a compiled program.

They are read once, from XLA's optimised program, so that a step costs
nothing more to observe. Each collective is counted as often as one execution
runs it: a loop multiplies by its trip count when XLA knows it; a branch may be
taken or not, so its count is unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from distlab.events import Collective
from distlab.profiling.hlo_text import Instruction, Module, parse

KINDS: Final = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "collective-permute",
    "all-to-all",
    "collective-broadcast",
)
_ARRAY: Final = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
_TRIP_COUNT: Final = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_IOTA_GROUPS: Final = re.compile(r"^\[([\d,]+)\]<=")
_MESH_GROUPS: Final = re.compile(r"^mesh\[(.*?)\]\s*\{(.*?)\}")
_MESH_AXIS: Final = re.compile(r"'([^']+)'=(\d+)")
_NAME: Final = re.compile(r"%([\w.\-]+)")
_CALLS: Final = ("calls", "to_apply", "called_computations")
_BRANCHES: Final = ("branch_computations", "true_computation", "false_computation")
_VALUES_KEPT: Final = 64
_PACKAGE: Final = Path(__file__).resolve().parents[1]


class ProgramContents(NamedTuple):
    """The collectives of a compiled program, and its costs on one device.

    Numbers are None when XLA does not report them.
    """

    collectives: list[Collective]
    flops: float | None
    bytes_accessed: float | None  # Bytes that one execution reads and writes
    temp_bytes: int | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None
    peak_bytes: int | None = None  # The most memory held at any time


def read_program(compiled: Any) -> ProgramContents:
    """Reads the collectives and costs of a compiled program."""
    cost = _read(compiled, "cost_analysis") or {}
    if isinstance(cost, list | tuple):
        cost = cost[0] if cost else {}
    memory = _read(compiled, "memory_analysis")
    text = _read(compiled, "as_text")
    return ProgramContents(
        collectives=collectives_of(text) if text else [],
        flops=_known(cost.get("flops")),
        bytes_accessed=_known(cost.get("bytes accessed")),
        temp_bytes=getattr(memory, "temp_size_in_bytes", None),
        argument_bytes=getattr(memory, "argument_size_in_bytes", None),
        output_bytes=getattr(memory, "output_size_in_bytes", None),
        peak_bytes=getattr(memory, "peak_memory_in_bytes", None),
    )


def read_programs(programs: Sequence[Any]) -> ProgramContents:
    """Reads the collectives of programs that make up one step, each executed once."""
    read = [read_program(program).collectives for program in programs]
    return ProgramContents([one for collectives in read for one in collectives], None, None)


def collectives_of(text: str) -> list[Collective]:
    """Returns the collectives in an optimised program."""
    module = parse(text)
    return list(_walk(module, module.entry, 1))


def _read(compiled: Any, attribute: str) -> Any:
    """Returns an attribute, or its result; backends without it raise errors of many types."""
    try:
        value = getattr(compiled, attribute)
        return value() if callable(value) else value
    except Exception:  # noqa: BLE001
        return None


def _known(number: Any) -> float | None:
    """Returns a cost; XLA reports -1 for one that it does not know."""
    return None if number is None or number < 0 else float(number)


def _walk(module: Module, computation: str, times: int | None) -> Iterator[Collective]:
    """Yields the collectives of `times` runs of a computation, callees included."""
    instructions = module.computations.get(computation, {})
    for instruction in instructions.values():
        kind = instruction.opcode.removesuffix("-start").removeprefix("ragged-")
        if kind in KINDS:
            yield _collective(module, instructions, instruction, kind, times)
        elif not instruction.opcode.endswith(("-done", "-update")):
            for callee, callee_times in _callees(instruction, times):
                yield from _walk(module, callee, callee_times)


def _callees(instruction: Instruction, times: int | None) -> Iterator[tuple[str, int | None]]:
    """Yields the computations that an instruction runs, and how often."""
    if "=%" not in instruction.rest and "={%" not in instruction.rest:
        return
    attributes = instruction.attributes
    if instruction.opcode == "while":
        match = _TRIP_COUNT.search(attributes.get("backend_config", ""))
        trips = int(match[1]) if match else None
        yield attributes["body"].lstrip("%"), _product(times, trips)
        yield (
            attributes["condition"].lstrip("%"),
            _product(times, None if trips is None else trips + 1),
        )
        return
    for key in (*_CALLS, *_BRANCHES):
        for name in _NAME.findall(attributes.get(key, "")):
            yield name, times if key in _CALLS else None


def _product(times: int | None, more: int | None) -> int | None:
    return None if times is None or more is None else times * more


def _collective(
    module: Module,
    instructions: dict[str, Instruction],
    instruction: Instruction,
    kind: str,
    times: int | None,
) -> Collective:
    shapes = [instructions[name].shape for name in instruction.operands if name in instructions]
    arrays = [array for shape in shapes for array in _ARRAY.findall(shape)]
    operand_bytes = sum(_bytes(dtype, dimensions) for dtype, dimensions in arrays)
    participants, group = _devices(module, instruction)
    return Collective(
        kind=kind,
        operand_bytes=operand_bytes,
        dtype="+".join(dict.fromkeys(dtype for dtype, _ in arrays)),
        operands=len(arrays),
        participants=participants,
        times_per_step=times,
        source=_source(module, instruction),
        wire_bytes=wire_bytes(kind, operand_bytes, group),
        group=group,
        values=_values(module, instructions, instruction, arrays),
    )


def wire_bytes(kind: str, operand_bytes: int, group: int) -> int:
    """Returns the bytes that one device sends, by the algorithm that sends the fewest.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md has those of a ring.
    """
    others = max(group - 1, 0)
    match kind:
        case "all-reduce":
            return 2 * operand_bytes * others // max(group, 1)
        case "all-gather":
            return operand_bytes * others
        case "reduce-scatter" | "all-to-all":
            return operand_bytes * others // max(group, 1)
        case _:
            return operand_bytes if others else 0


def _values(
    module: Module,
    instructions: dict[str, Instruction],
    collective: Instruction,
    arrays: Sequence[tuple[str, str]],
) -> list[str]:
    """Returns a text for each operand; its origin is where XLA splits the combined result."""
    texts = [f"{dtype}[{dimensions}]" for dtype, dimensions in arrays]
    if len(arrays) > 1:
        for taken in instructions.values():
            if taken.opcode == "get-tuple-element" and taken.operands == [collective.name]:
                place = int(taken.attributes.get("index", -1))
                source = _source(module, taken)
                if 0 <= place < len(texts) and source:
                    texts[place] += f" from {source}"
    return texts[:_VALUES_KEPT]


def _bytes(dtype: str, dimensions: str) -> int:
    """Returns the bytes of an array such as `f32[8,16]`; elements below a byte share bytes."""
    count = math.prod(int(size.lstrip("<=")) for size in dimensions.split(",") if size)
    return (count * _bits(dtype) + 7) // 8


def _bits(dtype: str) -> int:
    """Returns the bits of an element: the number in XLA's name of its type, 0 for tokens."""
    if dtype == "pred":
        return 8
    match = re.search(r"\d+", dtype)
    return int(match[0]) if match else 0


def _devices(module: Module, instruction: Instruction) -> tuple[int, int]:
    """Returns how many devices take part, and how many of them work together."""
    groups = instruction.attributes.get("replica_groups", "")
    if iota := _IOTA_GROUPS.match(groups):
        sizes = [int(size) for size in iota[1].split(",")]
        return math.prod(sizes), sizes[-1]
    if mesh := _MESH_GROUPS.match(groups):  # newer XLA names axes
        axes = {axis: int(size) for axis, size in _MESH_AXIS.findall(mesh[1])}
        named = [size for axis, size in axes.items() if f"'{axis}'" in mesh[2]]
        return math.prod(axes.values()), math.prod(named)
    pairs = groups or instruction.attributes.get("source_target_pairs", "")
    header = module.header
    whole = int(header.get("num_partitions", 1)) * int(header.get("replica_count", 1))
    participants = len(set(re.findall(r"\d+", pairs))) or whole
    first = re.search(r"\{([\d,]+)\}", groups)
    return participants, len(first[1].split(",")) if first else participants


def _source(module: Module, instruction: Instruction) -> str:
    """Returns its origin in the user's program: the operation and the line."""
    written = instruction.attributes.get("metadata", "{}").strip("{}")
    metadata = dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', written))
    operation = metadata.get("op_name", "").strip('"')
    file, line = metadata.get("source_file", "").strip('"'), metadata.get("source_line", "")
    frame = module.frames.get(int(metadata.get("stack_frame_id", 0)))
    while frame is not None:
        file, line = frame.file, str(frame.line)
        caller = module.frames.get(frame.caller)
        if caller is None or not _is_library(file):
            break
        frame = caller
    place = f"{Path(file).name}:{line}" if file else ""
    return " at ".join(part for part in (operation, place) if part)


def _is_library(file: str) -> bool:
    """Returns whether a file is distlab's own; the demo counts as a user's program."""
    path = Path(file)
    return path.is_relative_to(_PACKAGE) and not path.is_relative_to(_PACKAGE / "demo")
