"""Values of several groups' jaxprs that are the same function of the same inputs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, final

from jax.extend import core

from distlab.step.jaxprs import operations
from distlab.step.ragged.stages import Atom, Group
from distlab.values.distributed import Shape


@final
class SameValues:
    """Numbers of the values of all groups; equal ones mean the same value on a replica.

    With `derivatives`, functions must also have the same derivatives, and constants be one object,
    as when one group's equation stands for those of all. Without it an output of a call or loop is
    compared by what it needs alone.
    """

    def __init__(self, groups: list[Group], *, derivatives: bool = True) -> None:
        self._derivatives = derivatives
        self._number_of: dict[Hashable, int] = {}
        self._after_collective: set[int] = set()
        self._numbers: list[dict[Any, int]] = []
        different = _inputs_of_different_shapes(groups)
        for group in groups:
            self._numbers.append({})
            self._add(group, different)
        of_all = set.intersection(*(set(numbers.values()) for numbers in self._numbers))
        self.common = of_all & self._after_collective
        self._variables: list[dict[int, Any]] = [
            {number: var for var, number in reversed(numbers.items())} for numbers in self._numbers
        ]

    def number(self, group: int, atom: Atom) -> int:
        """Returns the number of a group's value."""
        if isinstance(atom, core.Literal):
            return self._number(operations.literal_key(atom))
        return self._numbers[group][atom]

    def column(self, group: int, atom: Atom) -> tuple[Atom, ...]:
        """Returns each group's atom of a value that all groups have."""
        number = self.number(group, atom)
        return tuple(variables.get(number, atom) for variables in self._variables)

    def names_of_common(self) -> list[dict[Any, Any]]:
        """Returns each group's variables of common values, with the first group's variable."""
        first = self._variables[0]
        return [
            {var: first[number] for var, number in numbers.items() if number in self.common}
            for numbers in self._numbers
        ]

    def _number(self, key: Hashable) -> int:
        return self._number_of.setdefault(key, len(self._number_of))

    def _add(self, group: Group, different: set[int]) -> None:
        jaxpr, numbers = group.jaxpr.jaxpr, self._numbers[-1]
        for var, const in zip(jaxpr.constvars, group.jaxpr.consts, strict=True):
            numbers[var] = self._number(operations.const_key(const, by_value=not self._derivatives))
        for var, source in zip(jaxpr.invars, group.inputs, strict=True):
            if source is None or source.position in different:
                numbers[var] = self._number(object())
            else:
                numbers[var] = self._number(("input", source.position))
        collectives = 0
        for equation in jaxpr.eqns:
            operands = [self.number(len(self._numbers) - 1, atom) for atom in equation.invars]
            keys: Sequence[Hashable]
            if operations.is_collective(equation):
                keys = [("collective", collectives, n) for n in range(len(equation.outvars))]
                collectives += 1
                after = True
            else:
                keys = self._keys(equation, operands)
                after = not self._after_collective.isdisjoint(operands)
            for key, var in zip(keys, equation.outvars, strict=True):
                numbers[var] = self._number(("output", key))
                if after:
                    self._after_collective.add(numbers[var])

    def _keys(self, equation: Any, operands: list[int]) -> list[Hashable]:
        outputs = range(len(equation.outvars))
        if self._derivatives:
            whole = operations.key(equation, operands)
            return [(whole, output) for output in outputs]
        return [operations.output_key(equation, operands, output) for output in outputs]


def _inputs_of_different_shapes(groups: list[Group]) -> set[int]:
    shapes: dict[int, set[Shape]] = {}
    for group in groups:
        for source in group.inputs:
            if source is not None:
                shapes.setdefault(source.position, set()).add(source.shape)
    return {position for position, found in shapes.items() if len(found) > 1}


def same_outputs(groups: list[Group]) -> list[bool]:
    """Returns for each output whether all groups compute it in the same way."""
    same = SameValues(groups, derivatives=False)
    columns = zip(*(group.jaxpr.jaxpr.outvars for group in groups), strict=True)
    return [
        len({same.number(group, atom) for group, atom in enumerate(column)}) == 1
        for column in columns
    ]
