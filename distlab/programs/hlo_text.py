"""Parses the text of an optimised XLA program: computations and instructions.

Only the grammar is here; `collectives` interprets the instructions. A line
such as

    %sum = f32[4]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add

becomes an `Instruction`. Operands and attributes are parsed when they are first
read, because few instructions of a large program are needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

_OPEN: Final = "([{"
_CLOSE: Final = ")]}"
_COMMENT: Final = re.compile(r"/\*.*?\*/")
_PAIR: Final = re.compile(r"(\w+)=(\w+)")
_UNESCAPE: Final = re.compile(r"\\(.)")
_NAME: Final = re.compile(r"%([\w.\-]+)")
_QUOTED: Final = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s}]+)')
_CALLED: Final = re.compile(
    r"\b(calls|to_apply|called_computations|body|condition|branch_computations|true_computation"
    r"|false_computation)=(%[\w.\-]+|\{[^}]*\})"
)


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    name: str
    shape: str  # Its result's shape as XLA writes it, such as `f32[4]{0}`
    opcode: str  # Its operation, such as `all-reduce`
    rest: str  # Operands and attributes, as written after the opcode

    @cached_property
    def operands(self) -> list[str]:
        """Names of its operands."""
        inside = self.rest[1 : self.rest.find(")")]
        if "(" in inside:  # the operands have types, one of them a tuple's
            inside = self.rest[1 : end_of_bracket(self.rest, 0) - 1]
        return _NAME.findall(inside) or [part.split()[-1] for part in split(inside)]

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Its attributes as written, such as `to_apply` to `%add`."""
        after = self.rest[end_of_bracket(self.rest, 0) :].lstrip(", ")
        found = dict(part.split("=", 1) for part in split(after) if "=" in part)
        if "device_ids" in found:  # a part of the groups, behind a comma
            found["replica_groups"] += f", device_ids={found.pop('device_ids')}"
        return found

    @cached_property
    def called(self) -> dict[str, list[str]]:
        """The computations that it runs, by attribute."""
        if "=%" not in self.rest and "={%" not in self.rest:
            return {}
        return {key: _NAME.findall(names) for key, names in _CALLED.findall(self.rest)}

    @cached_property
    def metadata(self) -> dict[str, str]:
        """Its origin in the traced program, such as `op_name` to `jit(step)/dot_general`."""
        written = dict(_QUOTED.findall(self.attributes.get("metadata", "")))
        return {key: _UNESCAPE.sub(r"\1", value.strip('"')) for key, value in written.items()}


class Frame(NamedTuple):
    """A stack frame of the Python program."""

    file: str
    line: int
    caller: int  # Number of the frame that called it, 0 for none


@dataclass
class Module:
    """A program."""

    header: dict[str, str] = field(default_factory=dict)  # Such as `num_partitions`
    entry: str = ""
    computations: dict[str, dict[str, Instruction]] = field(default_factory=dict)
    roots: dict[str, str] = field(default_factory=dict)  # Computations to their results
    frames: dict[int, Frame] = field(default_factory=dict)  # By `stack_frame_id`

    @property
    def devices(self) -> int:
        """Number of devices that run it."""
        counts = (self.header.get(name, 1) for name in ("num_partitions", "replica_count"))
        return math.prod(map(int, counts))

    @property
    def parameters(self) -> dict[int, Instruction]:
        """The arrays that it receives, by number."""
        entry = self.computations.get(self.entry, {}).values()
        return {int(one.operands[0]): one for one in entry if one.opcode == "parameter"}


def parse(text: str) -> Module:
    """Parses a program as `jax.stages.Compiled.as_text()` returns it."""
    module = Module()
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] = {}
    computation: dict[str, Instruction] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("HloModule"):
            parts = split(line.removeprefix("HloModule"))
            module.header = dict(part.split("=", 1) for part in parts if "=" in part)
        elif line.startswith(("%", "ENTRY")) and line.endswith("{"):
            name = line.removeprefix("ENTRY").split()[0].lstrip("%")
            computation = module.computations.setdefault(name, {})
            if line.startswith("ENTRY"):
                module.entry = name
        elif line.startswith(" "):
            instruction = _instruction(line)
            if instruction is not None:
                computation[instruction.name] = instruction
                if line.lstrip().startswith("ROOT "):
                    module.roots[name] = instruction.name
        elif line[:1].isdigit():
            number, _, entry = line.partition(" ")
            table[int(number)] = entry
        elif line.isalpha():
            table = tables.setdefault(line, {})
    module.frames = dict(_frames(tables))
    return module


def _scan(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yields each place outside of quotes, and how many brackets are open after it."""
    depth, place = 0, start
    while place < len(text):
        character = text[place]
        if character == '"':
            place += 1
            while place < len(text) and text[place] != '"':
                place += 2 if text[place] == "\\" else 1
        else:
            depth += (character in _OPEN) - (character in _CLOSE)
            yield place, depth
        place += 1


def split(text: str) -> list[str]:
    """Splits at the commas that are outside of all brackets and quotes."""
    commas = [place for place, depth in _scan(text) if not depth and text[place] == ","]
    begins, ends = [0, *(place + 1 for place in commas)], [*commas, len(text)]
    parts = [text[begin:end].strip() for begin, end in zip(begins, ends, strict=True)]
    return [part for part in parts if part]


def end_of_bracket(text: str, start: int) -> int:
    """Returns the place after the bracket that closes the one at `start`."""
    return next((place + 1 for place, depth in _scan(text, start) if not depth), len(text))


def _instruction(line: str) -> Instruction | None:
    """Parses `[ROOT] %name = shape opcode(operands), attributes`."""
    name, equals, right = line.strip().removeprefix("ROOT ").partition(" = ")
    if not equals:
        return None
    right = _COMMENT.sub("", right) if "/*" in right else right
    shape_end = end_of_bracket(right, 0) if right.startswith("(") else right.find(" ")
    shape, right = right[:shape_end], right[shape_end:].lstrip()
    opcode, bracket, rest = right.partition("(")
    if not bracket:
        return None
    return Instruction(name.lstrip("%"), shape, opcode.strip(), bracket + rest)


def _frames(tables: dict[str, dict[int, str]]) -> Iterator[tuple[int, Frame]]:
    """Joins the tables in which XLA keeps the origin of instructions.

    `parent_frame_id` is one more than the number of the calling frame: 1 stands for none.
    """
    files = tables.get("FileNames", {})
    places = {n: dict(_PAIR.findall(e)) for n, e in tables.get("FileLocations", {}).items()}
    for number, entry in tables.get("StackFrames", {}).items():
        frame = dict(_PAIR.findall(entry))
        place = places.get(int(frame.get("file_location_id", 0)), {})
        yield (
            number,
            Frame(
                files.get(int(place.get("file_name_id", 0)), "").strip('"'),
                int(place.get("line", 0)),
                int(frame.get("parent_frame_id", 1)) - 1,
            ),
        )
