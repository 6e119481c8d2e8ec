"""The collectives of a compiled program: what each moves, along which axes, for what, for whom.

They are read from the text of XLA's optimised program. Each is counted as often as one execution
runs it: a loop multiplies by its trip count when XLA knows it; a branch may be taken or not, so its
count is unknown. An asynchronous one is written in two or three places and is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from distlab.events import Collective
from distlab.programs.flow import ARRAY, Flow, Value, elements, sizes_of
from distlab.programs.hlo_text import Instruction, Module
from distlab.programs.mesh_axes import (
    Along,
    along_groups,
    along_pairs,
    fills,
    groups_of,
)
from distlab.programs.places import Places
from distlab.user_code import is_users, line_text

KINDS: Final = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "collective-permute",
    "all-to-all",
    "collective-broadcast",
)

_SUMS: Final = ("all-reduce", "reduce-scatter")
_TRIP_COUNT: Final = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_CHAIN: Final = re.compile(r'chain_id="(\d+)"')
_PAIR: Final = re.compile(r"\{(\d+),(\d+)\}")
_ASKED: Final = re.compile(
    r"(?:^|/)(psum|pmean|pmax|pmin|pgather|ppermute|pshuffle|pbroadcast|all_gather|all_to_all"
    r"|ragged_all_to_all|reduce_scatter|psum_scatter|unreduced_\w+|reshard)(?:_invariant)?[^/]*$"
)
_BY_XLA: Final = 'is_spmd_generated="true"'
_BACKWARD: Final = "transpose("
_NUMBER_BYTES: Final = 16
_VALUES_KEPT: Final = 64


class Reader:
    """Reads the collectives of one program, whose arrays give meshes and names."""

    def __init__(self, module: Module, places: Places) -> None:
        self._module, self._places = module, places
        self._flow = Flow(module)
        self._given = {n: sum(sizes_of(one)) for n, one in module.parameters.items()}

    def collectives(self) -> list[Collective]:
        """Returns the collectives, in the program's order."""
        found, chains = [], set()
        for computation, one, times in _walk(self._module, self._module.entry, 1):
            # A TPU begins, continues and ends one collective in three computations. All collectives
            # of a shard_map have the same channel, so only both numbers tell them apart.
            chain = _CHAIN.search(one.rest)
            if chain is not None:
                key = (chain[1], one.attributes.get("channel_id"), one.opcode)
                if key in chains:
                    continue
                chains.add(key)
            found.append(self._collective(computation, one, times))
        return found

    def _collective(self, computation: str, one: Instruction, times: int | None) -> Collective:
        kind = _kind(computation, one)
        body = self._module.computations[computation]
        operands = one.operands[:1] if one.opcode.startswith("ragged-") else one.operands
        shapes = [body[name].shape for name in operands if name in body]
        arrays = [array for shape in shapes for array in ARRAY.findall(shape)]
        size = sum(_bytes(*array) for array in arrays)
        along, participants, group = self._along(one)
        origin = self._origin(computation, one)
        asked = _ASKED.search(origin.metadata.get("op_name", "")) and _BY_XLA not in origin.rest
        purpose, names = self._purpose(kind, computation, one, arrays, group)
        return Collective(
            kind=kind,
            operand_bytes=size,
            dtype="+".join(dict.fromkeys(dtype for dtype, _ in arrays)),
            operands=len(arrays),
            participants=participants,
            times_per_step=times,
            source=source_of(self._module, origin),
            wire_bytes=wire_bytes(kind, size, group),
            group=group,
            values=self._values(computation, one, arrays),
            axes=list(along.axes),
            shift=along.shift,
            asked="program" if asked else "xla",
            purpose=purpose,
            names=names[:_VALUES_KEPT],
            then_sliced=self._then_sliced(kind, computation, one),
        )

    def _origin(self, computation: str, one: Instruction) -> Instruction:
        """Returns the nearest instruction that says which operation of the program it stems from.

        XLA forgets it of some collectives that it moves into a fusion, or combines; of those for
        an argument it may know the argument's name alone.
        """
        near = (
            one,
            *self._flow.callers(computation),
            *self._flow.users(Value(computation, one.name)),
            *self._flow.before(computation, one),
        )
        named = [other for other in near if other.metadata.get("op_name")]
        located = (other for other in named if " at " in source_of(self._module, other))
        return next(located, named[0] if named else one)

    def _along(self, one: Instruction) -> tuple[Along, int, int]:
        """Returns where it runs, how many devices take part, and how many work together."""
        pairs = [
            (int(a), int(b))
            for a, b in _PAIR.findall(one.attributes.get("source_target_pairs", ""))
        ]
        if pairs:
            found = [along_pairs(pairs, mesh) for mesh in self._places.meshes]
            taking = len({end for pair in pairs for end in pair})
            return next((one for one in found if one), Along()), taking, taking
        devices = self._module.devices
        groups = groups_of(one.attributes.get("replica_groups", ""), devices)
        if groups is None:
            return Along(), devices, devices
        group = groups.shape[1]
        tried = [
            (mesh, along) for mesh in self._places.meshes if (along := along_groups(groups, mesh))
        ]
        _, along = min(
            tried,
            key=lambda one: (not fills(one[1], group, one[0]), len(one[1].axes)),
            default=({}, Along()),
        )
        return along, len(set(groups.flat)), group

    def _purpose(
        self,
        kind: str,
        computation: str,
        one: Instruction,
        arrays: Sequence[tuple[str, str]],
        group: int,
    ) -> tuple[str, list[str]]:
        """Returns what a collective is for, and the names of the parameters concerned."""
        if kind in _SUMS:
            if max((_bytes(*array) for array in arrays), default=0) <= _NUMBER_BYTES:
                return "numbers", []
            computed = any(
                _BACKWARD in near.metadata.get("op_name", "")
                for near in self._flow.before(computation, one)
            )
            if names := self._states(computation, one, group, backward=computed):
                return "gradients" if computed else "updates", names
        if names := self._inputs(kind, computation, one):
            return "parts" if kind in ("all-to-all", "collective-permute") else "whole", names
        origin = self._origin(computation, one).metadata.get("op_name", "")
        return "activations, backward" if _BACKWARD in origin else "activations", []

    def _inputs(self, kind: str, computation: str, one: Instruction) -> list[str]:
        """Returns the names of the inputs that it gathers or sends on, if these are all it moves.

        TPUs gather small parts by a sum, to which each device gives its part and zeros.
        """
        origins = [self._flow.origins(Value(computation, name)) for name in one.operands]
        numbers = dict.fromkeys(number for found in origins for number in found)
        given = sum(self._given[number] for number in numbers)
        if not all(origins) or (kind in _SUMS and sum(sizes_of(one)) <= given):
            return []
        return [name for n in numbers if (name := self._places.input(n))]

    def _states(
        self, computation: str, one: Instruction, group: int, *, backward: bool
    ) -> list[str]:
        """Returns the names of the states that the results of a sum go into."""
        found: dict[str, None] = {}
        for result, size in self._results(computation, one):
            reached = self._flow.outputs(result, {size, size // max(group, 1)})
            if size > 1 and (name := self._places.state(reached, backward=backward)):
                found[name] = None
        return list(found)

    def _results(self, computation: str, one: Instruction) -> list[tuple[Value, int]]:
        """Returns each result of a collective with its number of elements."""
        several = one.shape.startswith("(")
        return [
            (Value(computation, one.name, index if several else None), size)
            for index, size in enumerate(sizes_of(one))
        ]

    def _then_sliced(self, kind: str, computation: str, one: Instruction) -> int:
        """Returns the bytes of results of which each device uses its own slice alone."""
        if kind not in ("all-reduce", "all-gather"):
            return 0
        sizes = [_bytes(*array) for array in ARRAY.findall(one.shape)]
        results = [value for value, _ in self._results(computation, one)]
        return sum(
            size
            for size, value in zip(sizes, results, strict=True)
            if size > _NUMBER_BYTES and self._flow.sliced(value)
        )

    def _values(
        self, computation: str, one: Instruction, arrays: Sequence[tuple[str, str]]
    ) -> list[str]:
        """Returns a text for each operand; its line is where XLA splits the combined result."""
        texts = [f"{dtype}[{dimensions}]" for dtype, dimensions in arrays]
        if len(arrays) > 1:
            for taken in self._flow.users(Value(computation, one.name)):
                place = int(taken.attributes.get("index", -1))
                source = source_of(self._module, taken)
                if 0 <= place < len(texts) and source:
                    texts[place] += f" from {source}"
        return texts[:_VALUES_KEPT]


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


def _kind(computation: str, one: Instruction) -> str:
    kind = one.opcode.removesuffix("-start").removeprefix("ragged-")
    # TPUs scatter a sum inside of a fusion of this name.
    in_scatter = kind == "all-reduce" and computation.startswith("all-reduce-scatter")
    return "reduce-scatter" if in_scatter else kind


def _walk(
    module: Module, computation: str, times: int | None
) -> Iterator[tuple[str, Instruction, int | None]]:
    """Yields the collectives of `times` runs of a computation, callees included."""
    for one in module.computations.get(computation, {}).values():
        if _kind("", one) in KINDS:
            yield computation, one, times
        elif one.called and not one.opcode.endswith(("-done", "-update")):
            for callee, often in _callees(module, computation, one, times):
                yield from _walk(module, callee, often)


def _callees(
    module: Module, computation: str, one: Instruction, times: int | None
) -> Iterator[tuple[str, int | None]]:
    """Yields the computations that an instruction runs, and how often."""
    trips = _trips(module, computation, one) if one.opcode == "while" else None
    for key, names in one.called.items():
        match key:
            case "body":
                often = _product(times, trips)
            case "condition":
                often = _product(times, None if trips is None else trips + 1)
            case "calls" | "to_apply" | "called_computations":
                often = times
            case _:
                often = None  # a branch
        yield from ((name, often) for name in names)


def _trips(module: Module, computation: str, loop: Instruction) -> int | None:
    """Returns how often a loop runs; TPUs leave it to its condition, as of a scan: `i < 4`."""
    known = _TRIP_COUNT.search(loop.rest)
    if known is not None:
        return int(known[1])
    name = loop.called["condition"][0]
    end = module.computations[name].get(module.roots.get(name, ""))
    if end is None or end.opcode != "compare" or "direction=LT" not in end.rest:
        return None
    counter, limit = (module.computations[name][operand] for operand in end.operands)
    if counter.opcode != "get-tuple-element":
        return None
    begin = module.computations[computation][loop.operands[0]]
    start = _constant(module, computation, begin.operands[int(counter.attributes["index"])])
    stop = _constant(module, name, limit.name)
    return None if start is None or stop is None else max(stop - start, 0)


def _constant(module: Module, computation: str, name: str) -> int | None:
    one = module.computations[computation].get(name)
    while one is not None and one.opcode in ("copy", "bitcast"):
        one = module.computations[computation].get(one.operands[0])
    written = one.operands[0] if one is not None and one.opcode == "constant" else ""
    return int(written) if re.fullmatch(r"-?\d+", written) else None


def _product(times: int | None, more: int | None) -> int | None:
    return None if times is None or more is None else times * more


def _bytes(dtype: str, dimensions: str) -> int:
    """Returns the bytes of an array such as `f32[8,16]`; elements below a byte share bytes."""
    return (elements(dimensions) * _bits(dtype) + 7) // 8


def _bits(dtype: str) -> int:
    """Returns the bits of an element: the number in XLA's name of its type, 0 for tokens."""
    if dtype == "pred":
        return 8
    match = re.search(r"\d+", dtype)
    return int(match[0]) if match else 0


def source_of(module: Module, one: Instruction) -> str:
    """Returns its origin in the user's program: the operation and the line."""
    metadata = one.metadata
    file, line = metadata.get("source_file", ""), metadata.get("source_line", "")
    innermost = frame = module.frames.get(int(metadata.get("stack_frame_id", 0)))
    while frame is not None and not is_users(frame.file):
        frame = module.frames.get(frame.caller)
    if shown := frame or innermost:
        file, line = shown.file, str(shown.line)
    place = line_text(file, int(line or 0)) if file else ""
    return " at ".join(part for part in (metadata.get("op_name", ""), place) if part)
