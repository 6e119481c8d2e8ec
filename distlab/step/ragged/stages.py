"""A ragged step divided into stages: what each group of replicas computes, and what all share.

The groups' jaxprs differ in shapes. Their collectives are common, and so is what all groups
compute in the same way from the results of collectives, such as the update of parameters.
Own and common stages alternate. Most training steps are one own stage (the gradients) and
one common stage (their sum, and the update).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.extend import core

from distlab.step.functions.arrays import constant
from distlab.step.jaxprs import operations
from distlab.step.jaxprs.flat import bind
from distlab.values.distributed import Shape
from distlab.values.padding import place_of

Atom: TypeAlias = Any
"""A variable of a jaxpr, or a literal."""

Values: TypeAlias = dict[Any, Any]
"""Variables of a jaxpr with their values."""


class InputSlice(NamedTuple):
    """The part of one of the step's inputs that a group reads; it begins at the input's origin."""

    position: int
    shape: Shape


class Group(NamedTuple):
    """Replicas whose arguments have the same shapes."""

    jaxpr: core.ClosedJaxpr  # with every collective at top level
    inputs: list[InputSlice | None]  # None for an unused one
    replicas: tuple[int, ...]

    def values(self, inputs: Sequence[Any]) -> Values:
        """Returns the values of the jaxpr's constants and inputs."""
        jaxpr = self.jaxpr.jaxpr
        values: Values = dict(zip(jaxpr.constvars, map(constant, self.jaxpr.consts), strict=True))
        for var, source in zip(jaxpr.invars, self.inputs, strict=True):
            if source is not None and inputs[source.position] is not None:
                value = inputs[source.position]
                same = value.shape == source.shape
                values[var] = value if same else value[place_of(source.shape, value.ndim)]
        return values


class Handed(NamedTuple):
    """A value that a common stage receives from the groups, by its number in `Stages.handed`."""

    number: int


class CommonEquation(NamedTuple):
    """An equation of the first group that all replicas compute together."""

    equation: Any
    operands: tuple[Atom | Handed, ...]


@dataclass
class OwnStage:
    """The computations of each group before a common stage, or at the end."""

    equations: list[list[Any]]  # of each group
    handed: list[int] = field(default_factory=list)  # numbers of values for common stages
    outputs: list[int] = field(default_factory=list)  # positions of the step's outputs
    live: list[list[Any]] = field(default_factory=list)  # by group, of earlier stages


@dataclass
class CommonStage:
    """The computations of all replicas together, collectives above all."""

    equations: list[CommonEquation]
    outputs: list[int] = field(default_factory=list)  # positions of the step's outputs
    results: list[Any] = field(default_factory=list)  # variables that later stages read


@dataclass
class Stages:
    """The stages of a ragged step: `own[0]`, `common[0]`, `own[1]` and so on, `own[-1]` last."""

    groups: list[Group]
    own: list[OwnStage]  # one more than common ones
    common: list[CommonStage]
    handed: list[tuple[Atom, ...]]  # an atom for each group
    outputs: list[tuple[Atom, ...]]  # likewise
    common_values: list[dict[Any, Any]]  # by group, with the first one's variable

    def given(self, number: int, group: int) -> list[Atom]:
        """Returns what a group's own stage hands to common stages, and its outputs."""
        stage = self.own[number]
        columns = [self.handed[n] for n in stage.handed] + [self.outputs[n] for n in stage.outputs]
        return [column[group] for column in columns]

    def live_after(self, number: int, group: int) -> list[Any]:
        """Returns the variables of own stages up to this one that later ones read."""
        return self.own[number + 1].live[group] if number + 1 < len(self.own) else []

    def is_needed(self, number: int, group: int) -> bool:
        """Returns whether a group computes anything in an own stage."""
        return bool(self.own[number].equations[group] or self.given(number, group))

    def evaluate_own(
        self, number: int, group: int, values: Values, replica_id: jax.Array
    ) -> list[jax.Array]:
        """Computes an own stage of one group."""
        for equation in self.own[number].equations[group]:
            if operations.is_replica_id(equation):
                outputs: list[Any] = [replica_id]
            else:
                outputs = bind(equation, [read(atom, values) for atom in equation.invars])
            values.update(zip(equation.outvars, outputs, strict=True))
        return [strong(read(atom, values), atom.aval.dtype) for atom in self.given(number, group)]

    def evaluate_common(
        self, number: int, values: Values, handed: dict[int, jax.Array]
    ) -> list[jax.Array]:
        """Computes a common stage."""
        names = self.common_values[0]
        for equation, operands in self.common[number].equations:
            inputs = [
                handed[one.number]
                if isinstance(one, Handed)
                else read(one if isinstance(one, core.Literal) else names.get(one, one), values)
                for one in operands
            ]
            outputs = bind(equation, inputs)
            values.update(zip((names[v] for v in equation.outvars), outputs, strict=True))
        atoms = [self.outputs[position][0] for position in self.common[number].outputs]
        return [strong(values[names[atom]], atom.aval.dtype) for atom in atoms]


def variables(atoms: Iterable[Atom]) -> list[Any]:
    """Returns the variables among atoms."""
    return [atom for atom in atoms if not isinstance(atom, core.Literal)]


def read(atom: Atom, values: Values) -> Any:
    """Returns the value of an atom."""
    return atom.val if isinstance(atom, core.Literal) else values[atom]


def strong(value: Any, dtype: Any) -> jax.Array:
    """Returns a value without a weak type: the branches of a switch must have equal types."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return value
    return jax.lax.convert_element_type(value, dtype)
