"""A replica's step with variables divided over the replicas: in parts as far as it can be.

What is wanted in parts is computed in parts, as far back as each element depends on one element of
each operand. So an optimizer's update is computed once for each element, by the replica that holds
it; and a sum over the replicas, of which each needs a part alone, is a reduce-scatter.

One walk from the results back marks in which forms each value is wanted, and one in the program's
order computes those. Loops carry parts, and branches choose among them. A value may differ between
replicas, as each one's gradients do before they are summed: then its part is that of the replica's
own. Parts of all replicas make a whole, as for a norm, only of a value that is alike on all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import jax
import jax.numpy as jnp
from jax.extend import core

from distlab.devices.layouts import Partition, joined, own_part
from distlab.devices.mesh import AXIS
from distlab.step.jaxprs import divergence, in_parts, operations
from distlab.step.jaxprs.flat import bind, located
from distlab.step.jaxprs.in_parts import WHOLE, Form
from distlab.step.jaxprs.operations import Inner


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
    """A computation of results of an operation, each in a form, from operands in some form."""

    results: Sequence[tuple[int, Form]]
    operands: Sequence[tuple[int, Form]]
    compute: Callable[[list[Any]], list[Any]]


class _Operation(NamedTuple):
    """An operation; `names` are those of the calls around it, `bodies` those that it runs."""

    equation: Any
    operands: list[_Value]
    results: list[_Value]
    names: Any
    bodies: list[_Body]


def evaluate(
    closed: core.ClosedJaxpr,
    constants: Sequence[Any],
    inputs: Sequence[Input | None],
    outputs: Sequence[Partition],
    replicas: int,
) -> list[Any]:
    """Computes a replica's blocks of the outputs."""
    step = _Body(Inner(closed.jaxpr, tuple(constants)), replicas)
    blocks: list[_Block] = []
    for value, one in zip(step.given, inputs, strict=True):
        value.alike = one is not None and one.alike
        blocks.append(None if one is None else _block(one))
    forms = [WHOLE if one.axis is None else one.axis for one in outputs]
    step.mark(forms)
    step.find_homes()
    step.mark(forms)
    made = step.evaluate(blocks, forms)
    return [
        one.block(block) if one.axis is None else block
        for one, block in zip(outputs, made, strict=True)
    ]


_Block: TypeAlias = tuple[Form, Any] | None
"""A value in a form; None for an unused one."""


def _block(one: Input) -> _Block:
    axis = one.partition.axis
    return (WHOLE, one.partition.local(one.block)) if axis is None else (axis, one.block)


@final
class _Body:
    """The operations of a step, or of a loop or branch in it, in the program's order."""

    def __init__(self, inner: Inner, replicas: int) -> None:
        self.given = [_Value() for _ in inner.jaxpr.invars]
        self._replicas = replicas
        self._operations: list[_Operation] = []
        self._constants: list[_Value] = []
        self._homes_found = False  # until then, parts are marked beside wholes
        self._results = self._inlined(inner, self.given)

    def _inlined(self, inner: Inner, given: Sequence[_Value], names: Any = None) -> list[_Value]:
        """Adds the operations of a jaxpr, and of the functions that it calls; returns its results.

        What is computed again for a gradient stays a call, or XLA would keep it from the first.
        """
        jaxpr, consts = inner
        known = [*map(self._constant, consts), *given]
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), known, strict=True))

        def value(atom: Any) -> _Value:
            return self._constant(atom.val) if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            operands = [value(atom) for atom in equation.invars]
            own = equation.source_info.name_stack
            own = own if names is None else names + own
            called = None if operations.is_recomputed(equation) else operations.called(equation)
            if called is None:
                results = [_Value() for _ in equation.outvars]
                bodies = [_Body(one, self._replicas) for one in _bodies(equation)]
                self._operations.append(_Operation(equation, operands, results, own, bodies))
            else:
                results = self._inlined(called, operands, own)
            values.update(zip(equation.outvars, results, strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _constant(self, value: Any) -> _Value:
        self._constants.append(_Value(alike=True))
        self._constants[-1].held[WHOLE] = value
        return self._constants[-1]

    def mark(self, forms: Sequence[Form]) -> None:
        """Marks the forms in which each value is wanted, for those of the results."""
        values = (v for one in self._operations for v in (*one.operands, *one.results))
        for value in (*values, *self.given, *self._results):
            value.wanted = set()
        for value, form in zip(self._results, forms, strict=True):
            value.wanted.add(form)
        for operation in reversed(self._operations):
            for way in self._ways(operation):
                for number, form in way.operands:
                    operation.operands[number].wanted.add(form)

    def find_homes(self) -> None:
        """Finds the values that come of sums over the replicas of which parts are wanted."""
        for equation, operands, results, _, bodies in self._operations:
            is_sum = in_parts.is_sum_of_all(equation)
            alike = [operand.alike for operand in operands]
            for value, flag in zip(results, divergence.alike(equation, alike), strict=True):
                value.alike = flag
                if is_sum:
                    value.home = min(value.wanted - {WHOLE}, default=None)
            for body in bodies:
                _give(body, equation, operands, results)
                body.find_homes()
            if is_sum or len(results) != 1 or not results[0].alike:
                continue
            for number, operand in enumerate(operands):
                if operand.home is not None and results[0].home is None:
                    forms = in_parts.operand_forms(equation, operand.home, self._replicas)
                    if forms is not None and forms[number] == operand.home:
                        results[0].home = operand.home
        self._homes_found = True

    def evaluate(self, blocks: Sequence[_Block], forms: Sequence[Form]) -> list[Any]:
        """Computes the results in the forms that were marked, from the values that are given."""
        for value, block in zip(self.given, blocks, strict=True):
            value.held = {} if block is None else dict([block])
        for constant in self._constants:  # without parts of an earlier trace
            constant.held = {WHOLE: constant.held[WHOLE]}
        for operation in self._operations:
            for value in operation.results:
                value.held = {}
            with located(operation.equation, operation.names):
                for way in self._ways(operation):
                    operands = [operation.operands[n].get(form) for n, form in way.operands]
                    made = way.compute(operands)
                    for (number, form), result in zip(way.results, made, strict=True):
                        operation.results[number].held[form] = result
        return [value.get(form) for value, form in zip(self._results, forms, strict=True)]

    def _ways(self, operation: _Operation) -> list[_Way]:
        """Returns how an operation's results are computed in the forms that are wanted."""
        equation, operands, results, _, _ = operation
        effect = operations.has_effect(equation)
        if not effect and not any(value.wanted for value in results):
            return []
        if in_parts.is_sum_of_all(equation):
            return _ways_to_sum(results)
        if operation.bodies:
            ways = self._through_bodies(operation)
            if ways:
                return ways
        ways = []
        if len(results) == 1 and not effect:
            ways = self._in_parts(equation, results[0]) or _of_parts(equation, operands)
        if ways and (self._homes_found or WHOLE not in results[0].wanted):
            return ways
        whole = [(number, WHOLE) for number in range(len(results))]
        every = [(number, WHOLE) for number in range(len(operands))]
        return [*ways, _Way(whole, every, lambda given: bind(equation, given))]

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
            _Way([(0, axis)], list(enumerate(of_operands or ())), compute(axis))
            for axis, of_operands in forms.items()
        ]

    def _through_bodies(self, operation: _Operation) -> list[_Way]:
        """Returns the way to run a loop or branch whose results are wanted in parts, if one may.

        What it carries from one iteration to the next is in parts only if it is alike on all
        replicas; and all must choose the same branch, where they may meet.
        """
        equation, operands, results, _, bodies = operation
        loop = operations.scan(equation)
        if loop is None and self._homes_found and not operands[0].alike:
            return []
        forms = [self._form(result, is_loop=loop is not None) for result in results]
        if loop is not None:
            forms[loop.carry :] = [WHOLE] * (len(results) - loop.carry)
        if set(forms) == {WHOLE}:
            return []
        for body in bodies:
            body.mark(forms)
        shift = len(operands) - len(bodies[0].given)
        wanted = [{WHOLE}] * shift
        for values in zip(*(body.given for body in bodies), strict=True):
            wanted.append(set[Form]().union(*(value.wanted for value in values)))
        if loop is not None:
            carried, end = loop.consts + loop.carry, len(operands)
            wanted[loop.consts : carried] = [{form} for form in forms[: loop.carry]]
            wanted[carried:] = [{WHOLE}] * (end - carried)
        given = [min(one) if len(one) == 1 else WHOLE for one in wanted]
        used = list(enumerate(given))
        if not self._homes_found:
            used = [(number, form) for number, one in enumerate(wanted) for form in one]
        run = _running(equation, bodies, given[shift:], forms)
        return [_Way(list(enumerate(forms)), used, run)]

    def _form(self, result: _Value, *, is_loop: bool) -> Form:
        """Returns the form in which a loop or branch makes a result."""
        axes = result.wanted - {WHOLE}
        if not axes or (WHOLE in result.wanted and not is_loop):
            return WHOLE
        return min(axes) if result.alike or not self._homes_found else WHOLE


def _bodies(equation: Any) -> list[Inner]:
    """Returns the jaxprs of a loop of known length, or of branches; none for other operations."""
    loop = operations.scan(equation)
    if loop is not None:
        return [Inner(loop.body.jaxpr, tuple(loop.body.consts))]
    return operations.branches(equation) or []


def _give(body: _Body, equation: Any, operands: list[_Value], results: list[_Value]) -> None:
    """Gives the inputs of a loop's or branch's body what is known of the values outside."""
    outside = operands[len(operands) - len(body.given) :]
    loop = operations.scan(equation)
    if loop is not None:
        outside[loop.consts : loop.consts + loop.carry] = results[: loop.carry]
    for number, (value, one) in enumerate(zip(body.given, outside, strict=True)):
        value.alike = one.alike
        if loop is None or number < loop.consts:
            value.home = one.home


def _typed(equation: Any, blocks: list[Any]) -> list[Any]:
    """Returns operands as arrays of their own types, which literals are not everywhere."""
    pairs = zip(blocks, equation.invars, strict=True)
    return [b if isinstance(b, jax.Array) else jnp.asarray(b, a.aval.dtype) for b, a in pairs]


def _running(
    equation: Any, bodies: list[_Body], given: list[Form], forms: list[Form]
) -> Callable[[list[Any]], list[Any]]:
    """Returns what runs a loop, or one of some branches, with values in some form."""
    loop = operations.scan(equation)

    def inside(body: _Body) -> Callable[..., list[Any]]:
        return lambda *values: body.evaluate(list(zip(given, values, strict=True)), forms)

    runs = list(map(inside, bodies))

    def run(blocks: list[Any]) -> list[Any]:
        blocks = _typed(equation, blocks)
        if loop is None:
            made: list[Any] = jax.lax.switch(blocks[0], runs, *blocks[1:])
            return made
        consts, rest = blocks[: loop.consts], blocks[loop.consts :]

        def one(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
            made = runs[0](*consts, *carry, *row)
            return made[: loop.carry], made[loop.carry :]

        carry, rows = jax.lax.scan(
            one,
            rest[: loop.carry],
            rest[loop.carry :],
            loop.length,
            reverse=loop.reverse,
            unroll=equation.params["unroll"],
        )
        return [*carry, *rows]

    return run


def _of_parts(equation: Any, operands: list[_Value]) -> list[_Way]:
    """Returns the way to make a reduction's result of those of parts, if there is one."""
    for number, operand in enumerate(operands):
        if operand.home is None or not all(one.alike for one in operands):
            continue
        forms = in_parts.reduced_forms(equation, number, operand.home)
        if forms is not None:
            return [
                _Way(
                    [(0, WHOLE)],
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

    whole = [(n, WHOLE) for n, value in enumerate(results) if WHOLE in value.wanted]
    ways = [
        _Way([(n, axis)], [(n, WHOLE)], scatter(axis))
        for n, value in enumerate(results)
        if WHOLE not in value.wanted
        for axis in sorted(value.wanted)
    ]
    if whole:
        ways.append(_Way(whole, whole, lambda given: list(jax.lax.psum(given, AXIS))))
    return ways
