"""What a collective combines, in words."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from distlab.events import Collective
from distlab.text.units import dtype_text

_VALUE: Final = re.compile(r"(?P<dtype>[a-z]\w*)\[(?P<sizes>[\d,<=]*)\](?: like (?P<name>.+))?")


class Combined(NamedTuple):
    """The operands of a collective.

    Attributes:
      text: How many they are, such as `"8 arrays and 1 number"`, or a single one, such as
        `"1 array like kernel"`; empty when they are not known.
      largest: The largest array, such as `"like kernel"`, or its type and shape; empty for
        numbers.
      values: Type, shape and name of each, the largest first, such as `"float32[64,10] like
        kernel"`: the variable or argument is one of the same shape, as a gradient is that of its
        variable.
    """

    text: str
    largest: str
    values: tuple[str, ...]


class _Operand(NamedTuple):
    dtype: str
    sizes: str
    name: str

    @property
    def shape(self) -> str:
        """Its type and shape."""
        return f"{dtype_text(self.dtype)}[{self.sizes}]"

    @property
    def likeness(self) -> str:
        """What it is like, where that is known."""
        return f"like {self.name}" if self.name else ""

    @property
    def length(self) -> int:
        """How many numbers it has."""
        return math.prod(int(size.lstrip("<=")) for size in self.sizes.split(",") if size)


NOT_KNOWN: Final = Combined("", "", ())


def combined(collective: Collective) -> Combined:
    """Returns what a collective combines."""
    operands = []
    for value in collective.values:
        match = _VALUE.match(value.partition(" from ")[0])
        if match is not None:
            operands.append(_Operand(match["dtype"], match["sizes"], match["name"] or ""))
    # Programs of one function combine the same values in orders of their own.
    operands.sort(key=lambda one: (-one.length, one.name, one.shape))
    arrays = [one for one in operands if one.sizes]
    if not operands:
        return NOT_KNOWN
    if not arrays:
        return Combined(_counted(len(operands), "number"), "", tuple(map(_text, operands)))
    largest = max(arrays, key=lambda one: one.length)
    unlisted = max(collective.operands - len(collective.values), 0)
    numbers = len(operands) - len(arrays)
    text = _counted(len(arrays) + unlisted, "array")
    if len(operands) + unlisted == 1:
        text = f"{text} {largest.likeness or largest.shape}"
    if numbers:
        text = f"{text} and {_counted(numbers, 'number')}"
    return Combined(text, largest.likeness or largest.shape, tuple(map(_text, operands)))


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"


def _text(operand: _Operand) -> str:
    return f"{operand.shape} {operand.likeness}".rstrip()
