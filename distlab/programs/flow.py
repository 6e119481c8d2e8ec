"""The way of values through a compiled program: from its inputs, and to its outputs.

A walk follows operations that move values, and forward also those that act on each element, as an
optimizer's do; it looks into fusions and loops. It ends after some hundred instructions, so a large
program costs no more than a small one; what it does not reach is unknown.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

from distlab.programs.hlo_text import Instruction, Module

ARRAY: Final = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")

_FARTHEST: Final = 2_000
"""Instructions that a walk visits."""

_MOVES: Final = frozenset(
    (
        *("copy", "copy-start", "copy-done", "bitcast", "bitcast-convert", "convert", "reshape"),
        *("transpose", "slice", "dynamic-slice", "broadcast", "pad", "reverse"),
        *("all-gather", "all-gather-start", "all-gather-done", "all-to-all"),
        *("collective-permute", "collective-permute-start", "collective-permute-done"),
        "optimization-barrier",
    )
)
_MADE: Final = frozenset({"constant", "iota", "partition-id", "replica-id", "after-all"})
_MIXES: Final = frozenset(
    (
        *(
            "dot",
            "convolution",
            "reduce",
            "reduce-window",
            "select-and-scatter",
            "scatter",
            "gather",
        ),
        *("custom-call", "sort", "fft", "all-gather", "all-gather-start", "all-to-all"),
    )
)
"""Operations whose results are no longer those of single elements."""

_SLICES: Final = frozenset({"dynamic-slice", "reduce-scatter"})
_RESHAPES: Final = frozenset({"copy", "bitcast", "convert", "reshape", "transpose"})


class Value(NamedTuple):
    """A value of a program: the result of an instruction."""

    computation: str
    name: str
    place: int | None = None  # Its place in a tuple


def elements(dimensions: str) -> int:
    """Returns the number of elements of an array such as `8,16`; sizes may be bounds: `<=8`."""
    return math.prod(int(size.lstrip("<=")) for size in dimensions.split(",") if size)


def sizes_of(one: Instruction) -> list[int]:
    """Returns the numbers of elements of an instruction's results."""
    return [elements(sizes) for _, sizes in ARRAY.findall(one.shape)]


def _takes(one: Instruction, place: int) -> bool:
    """Returns whether an instruction that is given a tuple uses this element."""
    return one.opcode != "get-tuple-element" or int(one.attributes["index"]) == place


def _inside(one: Instruction) -> list[str]:
    """Returns the computation of a fusion, call or loop."""
    return [name for key in ("calls", "to_apply", "body") for name in one.called.get(key, ())]


def _moved(one: Instruction, index: int | None) -> list[str]:
    """Returns the operands of which a result is made by moving alone; none where it is computed."""
    if one.opcode in _MOVES or (one.opcode == "tuple" and index is not None):
        place = index or 0
        return [one.operands[place if place < len(one.operands) else 0]]
    if one.opcode == "dynamic-update-slice":
        return one.operands[:2]
    return one.operands[one.opcode == "select" :] if one.opcode in ("select", "concatenate") else []


class Flow:
    """The ways of a program's values."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._users: dict[str, dict[str, list[Instruction]]] = {}

    def origins(self, value: Value) -> list[int]:
        """Returns the inputs of which a value is made by moving alone; empty if it is computed."""
        found: dict[int, None] = {}
        walk = _walk(value, lambda one: self._sources(one, found))
        return [] if any(one is None for one in walk) else list(found)

    def _sources(self, value: Value, found: dict[int, None]) -> Iterator[Value | None]:
        """Yields what a value is made of, None where it is computed; adds the inputs to `found`."""
        one = self._module.computations[value.computation].get(value.name)
        opcode = "" if one is None else one.opcode
        if one is None or opcode in _MADE:
            yield from () if opcode else (None,)
        elif opcode == "parameter" and value.computation == self._module.entry:
            found[int(one.operands[0])] = None
        elif opcode == "parameter":
            yield from self._passed(value, int(one.operands[0]))
        elif opcode == "get-tuple-element":
            yield value._replace(name=one.operands[0], place=int(one.attributes["index"]))
        elif opcode in ("while", "fusion", "call"):
            if opcode == "while":
                yield value._replace(name=one.operands[0])
            for name in _inside(one):
                yield self._result(name, value.place)
        else:
            moved = _moved(one, value.place)
            yield from (value._replace(name=name, place=None) for name in moved)
            if not moved:
                yield None

    def _passed(self, value: Value, number: int) -> Iterator[Value | None]:
        """Yields what the callers of a computation pass as its parameter."""
        callers = self._callers[value.computation]
        if not callers:
            yield None
        for outer, call in callers:
            if call.opcode == "while":
                yield Value(outer, call.operands[0], value.place)
                yield self._result(_inside(call)[0], value.place)
            elif number < len(call.operands):
                yield Value(outer, call.operands[number], value.place)

    def _result(self, computation: str, index: int | None) -> Value:
        return Value(computation, self._module.roots.get(computation, ""), index)

    def outputs(self, value: Value, counts: Collection[int]) -> list[int]:
        """Returns the outputs that a value reaches through arrays of these numbers of elements.

        The nearest come first.
        """
        found: dict[int, None] = {}
        for _ in _walk(value, lambda one: self._onward(one, counts, found)):
            pass
        return list(found)

    def _onward(
        self, value: Value, counts: Collection[int], found: dict[int, None]
    ) -> Iterator[Value]:
        """Yields what a value becomes; adds the program's outputs to `found`."""
        for user in self.users(value):
            if user.opcode == "get-tuple-element":
                yield value._replace(name=user.name, place=None)
            elif user.opcode in ("while", "fusion", "call"):
                if user.opcode == "while":
                    yield value._replace(name=user.name)
                for computation, name in self._parameters(user, value.name):
                    yield Value(computation, name, value.place)
            elif user.opcode not in _MIXES:
                several = user.shape.startswith("(")
                yield from (
                    value._replace(name=user.name, place=place if several else None)
                    for place in self._places_of(user, value, counts)
                )
        if value.name == self._module.roots.get(value.computation):
            if value.computation == self._module.entry:
                found[value.place or 0] = None
            for outer, call in self._callers[value.computation]:
                yield Value(outer, call.name, value.place)

    def _parameters(self, call: Instruction, operand: str) -> Iterator[tuple[str, str]]:
        """Yields the parameters that receive an operand of a fusion, call or loop."""
        passed = {str(n) for n, name in enumerate(call.operands) if name == operand}
        for computation in _inside(call):
            for one in self._module.computations[computation].values():
                if one.opcode == "parameter" and one.operands[0] in passed:
                    yield computation, one.name

    def _places_of(self, user: Instruction, value: Value, counts: Collection[int]) -> Iterator[int]:
        """Yields the places of an instruction's results that hold a value's elements.

        A tuple, and a collective of several arrays, has a result for each operand.
        """
        sizes = sizes_of(user)
        if user.opcode == "tuple" or (len(sizes) > 1 and len(sizes) == len(user.operands)):
            yield from (n for n, name in enumerate(user.operands) if name == value.name)
            return
        held = sizes_of(self._module.computations[value.computation][value.name])
        same = held[(value.place or 0) : (value.place or 0) + 1]
        allowed = counts if user.opcode in _SLICES else same
        yield from (n for n, size in enumerate(sizes) if size in allowed)

    def before(self, computation: str, one: Instruction, most: int = 24) -> list[Instruction]:
        """Returns an instruction, those that made its operands, and theirs of as many elements."""
        found, queue = {one.name: one}, deque([(computation, one)])
        first = one
        while queue and len(found) < most:
            computation, one = queue.popleft()
            for name in one.operands:
                for outer, made in self._makers(computation, name):
                    alike = one is first or {*sizes_of(one)} & {*sizes_of(made)}
                    if made.name not in found and alike:
                        found[made.name] = made
                        queue.append((outer, made))
        return list(found.values())

    def _makers(self, computation: str, name: str) -> Iterator[tuple[str, Instruction]]:
        """Yields the instruction that makes a value, for a parameter those that callers pass."""
        made = self._module.computations[computation].get(name)
        if made is None:
            return
        if made.opcode != "parameter" or computation == self._module.entry:
            yield computation, made
            return
        for outer, call in self._callers[computation]:
            number = int(made.operands[0])
            if call.opcode != "while" and number < len(call.operands):
                yield from self._makers(outer, call.operands[number])

    def sliced(self, value: Value, depth: int = 6) -> bool:
        """Returns whether of a value each user takes a slice alone, by the device's number."""
        users = self.users(value)
        if not users or not depth or value.name == self._module.roots.get(value.computation):
            return False
        return all(self._slices(value, user, depth - 1) for user in users)

    def _slices(self, value: Value, user: Instruction, depth: int) -> bool:
        if user.opcode == "dynamic-slice":
            return user.operands[0] == value.name
        if user.opcode in _RESHAPES or user.opcode.endswith(("-done", "-element")):
            return self.sliced(Value(value.computation, user.name), depth)
        if user.opcode not in ("fusion", "call"):
            return False
        return all(
            self.sliced(Value(computation, name), depth)
            for computation, name in self._parameters(user, value.name)
        )

    def callers(self, computation: str) -> list[Instruction]:
        """Returns the instructions that run a computation."""
        return [call for _, call in self._callers[computation]]

    def users(self, value: Value) -> list[Instruction]:
        """Returns the instructions that use a value."""
        computation, name, place = value
        if computation not in self._users:
            users: dict[str, list[Instruction]] = defaultdict(list)
            for one in self._module.computations[computation].values():
                for operand in dict.fromkeys(one.operands):
                    users[operand].append(one)
            self._users[computation] = users
        found = self._users[computation].get(name, [])
        return [one for one in found if place is None or _takes(one, place)]

    @cached_property
    def _callers(self) -> dict[str, list[tuple[str, Instruction]]]:
        found: dict[str, list[tuple[str, Instruction]]] = defaultdict(list)
        for outer, body in self._module.computations.items():
            for one in body.values():
                for names in one.called.values():
                    for name in names:
                        found[name].append((outer, one))
        return found


def _walk(
    start: Value, onward: Callable[[Value], Iterable[Value | None]]
) -> Iterator[Value | None]:
    """Yields each value that is reached, the nearest first; None for a way that ends."""
    queue, seen = deque([start]), {start}
    while queue:
        if len(seen) > _FARTHEST:
            yield None
            return
        one = queue.popleft()
        yield one
        for following in onward(one):
            if following is None:
                yield None
            elif following not in seen:
                seen.add(following)
                queue.append(following)
