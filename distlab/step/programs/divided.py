"""A replica's step with variables divided over the replicas: in parts as far as it can be.

What is wanted in parts is computed in parts, as far back as each element depends on one element of
each operand. So an optimizer's update is computed once for each element, by the replica that holds
it; and a sum over the replicas, of which each needs a part alone, is a reduce-scatter.

One walk from the results back marks in which forms each value is wanted, and one in the program's
order computes those. A value may differ between replicas, as each replica's gradients do before
they are summed: then its part is that of the replica's own. Parts of all replicas make a whole, as
for a norm, only of a value that is alike on all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

import jax
from jax.extend import core

from distlab.devices.layouts import Partition, joined, own_part
from distlab.devices.mesh import AXIS
from distlab.step.jaxprs import divergence, in_parts, operations
from distlab.step.jaxprs.flat import bind, located
from distlab.step.jaxprs.in_parts import WHOLE, Form


class Input(NamedTuple):
    """An input of the step: its block, and whether it is the same on all replicas."""

    partition: Partition
    block: Any
    alike: bool


@final
class _Value:
    """A value of the step.

    `wanted` and `held` are its forms; `home` is the axis along which its parts come of reduced and
    scattered sums, where it is alike on all replicas.
    """

    __slots__ = ("alike", "held", "home", "wanted")

    def __init__(self, *, alike: bool = False) -> None:
        self.alike = alike
        self.held: dict[Form, Any] = {}
        self.home: Form | None = None
        self.wanted: set[Form] = set()

    def get(self, form: Form) -> Any:
        """Returns the value in a form, made of the one in which it is held if need be."""
        if WHOLE not in self.held and form not in self.held:
            ((axis, held),) = self.held.items()
            self.held[WHOLE] = joined(held, axis)
        if form not in self.held:
            self.held[form] = own_part(self.held[WHOLE], form)
        return self.held[form]


class _Way(NamedTuple):
    """A computation of some results of an operation, in one form."""

    form: Form
    results: Sequence[int]
    operands: Sequence[tuple[int, Form]]
    compute: Callable[[list[Any]], list[Any]]


class _Operation(NamedTuple):
    """An operation; `names` are those of the calls around it."""

    equation: Any
    operands: list[_Value]
    results: list[_Value]
    names: Any


def evaluate(
    closed: core.ClosedJaxpr,
    constants: Sequence[Any],
    inputs: Sequence[Input | None],
    outputs: Sequence[Partition],
    replicas: int,
) -> list[Any]:
    """Computes a replica's blocks of the outputs."""
    given = [_held(WHOLE, one, alike=True) for one in constants]
    given += [_Value() if one is None else _of_input(one) for one in inputs]
    step = _Step(replicas)
    results = step.inline(closed.jaxpr, given)
    forms = [WHOLE if one.axis is None else one.axis for one in outputs]
    step.mark(results, forms)
    step.find_homes()
    step.mark(results, forms)
    step.compute()
    blocks = [value.get(form) for value, form in zip(results, forms, strict=True)]
    return [
        one.block(block) if one.axis is None else block
        for one, block in zip(outputs, blocks, strict=True)
    ]


def _held(form: Form, block: Any, *, alike: bool) -> _Value:
    value = _Value(alike=alike)
    value.held[form] = block
    return value


def _of_input(one: Input) -> _Value:
    if one.partition.axis is not None:
        return _held(one.partition.axis, one.block, alike=one.alike)
    return _held(WHOLE, one.partition.local(one.block), alike=one.alike)


@final
class _Step:
    """The operations of a step in the program's order."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._operations: list[_Operation] = []
        self._homes_found = False  # until then, parts are marked beside wholes

    def inline(self, jaxpr: Any, given: Sequence[_Value], names: Any = None) -> list[_Value]:
        """Adds the operations of a jaxpr, and of the functions that it calls; returns its results.

        What is computed again for a gradient stays a call, or XLA would keep it from the first.
        """
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), given, strict=True))

        def value(atom: Any) -> _Value:
            if isinstance(atom, core.Literal):
                return _held(WHOLE, atom.val, alike=True)
            return values[atom]

        for equation in jaxpr.eqns:
            operands = [value(atom) for atom in equation.invars]
            own = equation.source_info.name_stack
            own = own if names is None else names + own
            called = None if operations.is_recomputed(equation) else operations.called(equation)
            if called is None:
                results = [_Value() for _ in equation.outvars]
                self._operations.append(_Operation(equation, operands, results, own))
            else:
                constants = [_held(WHOLE, one, alike=True) for one in called.consts]
                results = self.inline(called.jaxpr, [*constants, *operands], own)
            values.update(zip(equation.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def mark(self, results: Sequence[_Value], forms: Sequence[Form]) -> None:
        """Marks the forms in which each value is wanted."""
        for operation in self._operations:
            for value in (*operation.operands, *operation.results):
                value.wanted = set()
        for value, form in zip(results, forms, strict=True):
            value.wanted.add(form)
        for operation in reversed(self._operations):
            for way in self._ways(operation):
                for number, form in way.operands:
                    operation.operands[number].wanted.add(form)

    def find_homes(self) -> None:
        """Finds the values that come of sums over the replicas of which parts are wanted."""
        for equation, operands, results, _ in self._operations:
            is_sum = in_parts.is_sum_of_all(equation)
            alike = divergence.is_alike(equation, [operand.alike for operand in operands])
            for value in results:
                value.alike = alike
                if is_sum:
                    value.home = min(value.wanted - {WHOLE}, default=None)
            if not alike or is_sum or len(results) != 1:
                continue
            for number, operand in enumerate(operands):
                if operand.home is not None and results[0].home is None:
                    forms = in_parts.operand_forms(equation, operand.home, self._replicas)
                    if forms is not None and forms[number] == operand.home:
                        results[0].home = operand.home

        self._homes_found = True

    def compute(self) -> None:
        """Computes the wanted forms of all values."""
        for operation in self._operations:
            with located(operation.equation, operation.names):
                for way in self._ways(operation):
                    operands = [operation.operands[n].get(form) for n, form in way.operands]
                    made = way.compute(operands)
                    for number, result in zip(way.results, made, strict=True):
                        operation.results[number].held[way.form] = result

    def _ways(self, operation: _Operation) -> list[_Way]:
        """Returns how an operation's results are computed in the forms that are wanted."""
        equation, operands, results, _ = operation
        effect = operations.has_effect(equation)
        if not effect and not any(value.wanted for value in results):
            return []
        if in_parts.is_sum_of_all(equation):
            return _ways_to_sum(results)
        ways: list[_Way] = []
        if len(results) == 1 and not effect:
            ways = self._in_parts(equation, results[0]) or _of_parts(equation, operands)
        if ways and (self._homes_found or WHOLE not in results[0].wanted):
            return ways
        every = [(number, WHOLE) for number in range(len(operands))]
        whole = _Way(WHOLE, range(len(results)), every, lambda given: bind(equation, given))
        return [*ways, whole]

    def _in_parts(self, equation: Any, result: _Value) -> list[_Way]:
        """Returns the ways to compute only parts of a result; none if it is computed whole."""
        axes = result.wanted - {WHOLE}
        if WHOLE in result.wanted and self._homes_found:
            axes &= {result.home}  # whole, too, rather of parts than of whole sums
        forms = {axis: in_parts.operand_forms(equation, axis, self._replicas) for axis in axes}
        if None in forms.values():
            return []

        def compute(axis: Form) -> Callable[[list[Any]], list[Any]]:
            return lambda given: [in_parts.part_of_result(equation, axis, self._replicas, given)]

        return [
            _Way(axis, [0], list(enumerate(of_operands or ())), compute(axis))
            for axis, of_operands in forms.items()
        ]


def _of_parts(equation: Any, operands: list[_Value]) -> list[_Way]:
    """Returns the way to make a reduction's result of those of parts, if there is one."""
    for number, operand in enumerate(operands):
        if operand.home is None or not all(one.alike for one in operands):
            continue
        forms = in_parts.reduced_forms(equation, number, operand.home)
        if forms is not None:
            return [
                _Way(
                    WHOLE,
                    [0],
                    list(enumerate(forms)),
                    lambda given: [in_parts.combined(equation, bind(equation, given)[0])],
                )
            ]
    return []


def _ways_to_sum(results: list[_Value]) -> list[_Way]:
    """Returns the ways to sum over the replicas: whole values together, and parts each."""

    def scatter(axis: Form) -> Callable[[list[Any]], list[Any]]:
        def compute(given: list[Any]) -> list[Any]:
            return jax.lax.psum_scatter(given, AXIS, scatter_dimension=axis, tiled=True)

        return compute

    whole = [n for n, value in enumerate(results) if WHOLE in value.wanted]
    ways = [
        _Way(axis, [n], [(n, WHOLE)], scatter(axis))
        for n, value in enumerate(results)
        if n not in whole
        for axis in sorted(value.wanted)
    ]
    if whole:
        together = [(n, WHOLE) for n in whole]
        ways.append(_Way(WHOLE, whole, together, lambda given: list(jax.lax.psum(given, AXIS))))
    return ways
