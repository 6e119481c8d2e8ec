"""Divides a ragged step into stages: each equation is in the earliest that its operands allow."""

from __future__ import annotations

from typing import Any, TypeAlias, final

from jax.extend import core

from distlab.errors import StructureError, ValueShapeError
from distlab.step.jaxprs import operations
from distlab.step.ragged.same_values import SameValues
from distlab.step.ragged.stages import (
    Atom,
    CommonEquation,
    CommonStage,
    Group,
    Handed,
    OwnStage,
    Stages,
    variables,
)

Column: TypeAlias = tuple[Atom, ...]
"""An atom of each group."""


def divide(groups: list[Group]) -> Stages:
    """Divides a step into stages."""
    collectives = [list(filter(operations.is_collective, g.jaxpr.jaxpr.eqns)) for g in groups]
    _require_same_collectives(collectives)
    stages = _Schedule(groups, list(zip(*collectives, strict=True))).stages()
    _drop_unused(stages)
    return stages


def _require_same_collectives(collectives: list[list[Any]]) -> None:
    names = [list(map(operations.name, equations)) for equations in collectives]
    if any(other != names[0] for other in names):
        raise StructureError(
            "All replicas must call the same collectives in the same order, but this step's "
            f"replicas, which have different shapes, call {' and '.join(map(str, names))}. "
            "Call them on every replica, whatever its shapes, and not in loops over its rows."
        )
    for equations in zip(*collectives, strict=True):
        operands = [[str(atom.aval.str_short()) for atom in e.invars] for e in equations]
        if any(other != operands[0] for other in operands):
            raise ValueShapeError(
                f"{operations.name(equations[0])} needs the same shapes on all replicas, got "
                f"{' and '.join(str(o) for o in operands)}. Reduce over the batch first, or use "
                "strategy.gather for values whose sizes differ."
            )


@final
class _Schedule:
    """The stages of all equations."""

    def __init__(self, groups: list[Group], collectives: list[tuple[Any, ...]]) -> None:
        self._groups = groups
        self._collectives = collectives
        self._same = SameValues(groups)
        first = groups[0].jaxpr.jaxpr
        self._given = {*first.invars, *first.constvars}
        self._of_common: dict[int, int] = {}
        self._of_own: list[dict[Any, int]] = [{} for _ in groups]
        # One group may have a value later than the others, and the collective then moves up
        # for all. It depends on earlier collectives only, so this ends.
        before: list[int] | None = None
        while before != (before := [sum(of.values()) for of in (self._of_common, *self._of_own)]):
            for group in range(len(groups)):
                self._advance(group)

    def stages(self) -> Stages:
        """Returns the stages, with everything in them, needed or not."""
        count = 1 + max(self._of_common.values(), default=-1)
        outputs = list(zip(*(group.jaxpr.jaxpr.outvars for group in self._groups), strict=True))
        stages = Stages(
            self._groups,
            own=[OwnStage([[] for _ in self._groups]) for _ in range(count + 1)],
            common=[CommonStage([]) for _ in range(count)],
            handed=[],
            outputs=outputs,
            common_values=self._same.names_of_common(),
        )
        for group, stage_of in enumerate(self._of_own):
            for equation in self._groups[group].jaxpr.jaxpr.eqns:
                if id(equation) in stage_of:
                    stages.own[stage_of[id(equation)]].equations[group].append(equation)
        self._fill_common(stages)
        for position, column in enumerate(outputs):
            value = self._common_value(column)
            if value is None:
                stages.own[self._ready(column)].outputs.append(position)
            else:
                stages.common[self._of_common[value]].outputs.append(position)
        return stages

    def _fill_common(self, stages: Stages) -> None:
        """Adds the first group's common equations, and what groups hand over to them."""
        handed: dict[tuple[int, ...], int] = {}
        computed: set[int] = set()
        for equation, columns in self._common_equations(0):
            value = self._same.number(0, equation.outvars[0])
            if value in computed:
                continue
            computed.add(value)
            operands: list[Atom | Handed] = []
            for column in columns:
                if self._is_handed(column):
                    values = self._numbers(column)
                    if values not in handed:
                        handed[values] = len(stages.handed)
                        stages.handed.append(column)
                        stages.own[self._ready(column)].handed.append(handed[values])
                    operands.append(Handed(handed[values]))
                else:
                    operands.append(column[0])
            stage = stages.common[self._of_common[value]]
            stage.equations.append(CommonEquation(equation, tuple(operands)))

    def _advance(self, group: int) -> None:
        """Moves a group's equations up to the stages in which they have their operands."""
        for equation, columns in self._common_equations(group):
            stage = max(map(self._common_stage, columns), default=0)
            for var in equation.outvars:
                number = self._same.number(group, var)
                self._of_common[number] = max(stage, self._of_common.get(number, 0))
        stage_of, latest_effect = self._of_own[group], 0
        for equation in self._groups[group].jaxpr.jaxpr.eqns:
            if self._is_common(group, equation):
                continue
            stage = max((self._own_stage(group, atom) for atom in equation.invars), default=0)
            if operations.has_effect(equation):  # effects keep their order
                stage = latest_effect = max(stage, latest_effect)
            stage_of[id(equation)] = stage
            stage_of.update(dict.fromkeys(equation.outvars, stage))

    def _common_equations(self, group: int) -> list[tuple[Any, list[Column]]]:
        """Returns a group's common equations, each with all groups' operands."""
        found: list[tuple[Any, list[Column]]] = []
        collectives = iter(self._collectives)
        for equation in self._groups[group].jaxpr.jaxpr.eqns:
            if operations.is_collective(equation):
                operands = zip(*(e.invars for e in next(collectives)), strict=True)
                found.append((equation, list(operands)))
            elif self._is_common(group, equation):
                found.append((equation, [self._same.column(group, a) for a in equation.invars]))
        return found

    def _is_common(self, group: int, equation: Any) -> bool:
        if operations.is_collective(equation):
            return True
        numbers = [self._same.number(group, var) for var in equation.outvars]
        return bool(numbers) and self._same.common.issuperset(numbers)

    def _own_stage(self, group: int, atom: Atom) -> int:
        """Returns the first own stage that can read a value."""
        if isinstance(atom, core.Literal):
            return 0
        number = self._same.number(group, atom)
        if number in self._same.common:
            return 1 + self._of_common.get(number, 0)
        return self._of_own[group].get(atom, 0)

    def _common_stage(self, column: Column) -> int:
        """Returns the first common stage that can read a value."""
        value = self._common_value(column)
        if value is not None:
            return self._of_common.get(value, 0)
        return self._ready(column) if self._is_handed(column) else 0

    def _ready(self, column: Column) -> int:
        """Returns the own stage after which all groups have a value."""
        return max(self._own_stage(group, atom) for group, atom in enumerate(column))

    def _common_value(self, column: Column) -> int | None:
        """Returns the number of a value that a common stage computes for all groups."""
        numbers = set(self._numbers(column))
        return numbers.pop() if len(numbers) == 1 and numbers <= self._same.common else None

    def _is_handed(self, column: Column) -> bool:
        """Returns whether groups must hand a value over: it is neither an input nor common."""
        numbers = set(self._numbers(column))
        if len(numbers) > 1:
            return True
        if isinstance(column[0], core.Literal) or numbers <= self._same.common:
            return False
        return column[0] not in self._given

    def _numbers(self, column: Column) -> tuple[int, ...]:
        return tuple(self._same.number(group, atom) for group, atom in enumerate(column))


def _drop_unused(stages: Stages) -> None:
    """Drops what neither an output nor an effect needs, and notes what lives between stages."""
    handed: set[int] = set()
    common: set[Any] = set()
    own: list[set[Any]] = [set() for _ in stages.groups]
    for number in reversed(range(len(stages.own))):
        if number < len(stages.common):
            _keep_needed_common(stages, number, common, handed)
        stage = stages.own[number]
        stage.handed = [n for n in stage.handed if n in handed]
        for group, needed in enumerate(own):
            names = stages.common_values[group]
            _keep_needed_own(stages, number, group, needed)
            common |= {names[var] for var in needed if var in names}
            needed.difference_update(names)
            defined = (v for e in stages.groups[group].jaxpr.jaxpr.eqns for v in e.outvars)
            stage.live.append([var for var in defined if var in needed])


def _keep_needed_own(stages: Stages, number: int, group: int, needed: set[Any]) -> None:
    stage = stages.own[number]
    needed.update(variables(stages.given(number, group)))
    kept = []
    for equation in reversed(stage.equations[group]):
        if operations.has_effect(equation) or not needed.isdisjoint(equation.outvars):
            kept.append(equation)
            needed.difference_update(equation.outvars)
            needed.update(variables(equation.invars))
    stage.equations[group] = kept[::-1]


def _keep_needed_common(stages: Stages, number: int, needed: set[Any], handed: set[int]) -> None:
    stage, names = stages.common[number], stages.common_values[0]
    stage.results = [
        name
        for equation, _ in stage.equations
        for name in map(names.__getitem__, equation.outvars)
        if name in needed
    ]
    needed.update(names[stages.outputs[position][0]] for position in stage.outputs)
    kept = []
    for common in reversed(stage.equations):
        if needed.isdisjoint(names[var] for var in common.equation.outvars):
            continue
        kept.append(common)
        handed.update(one.number for one in common.operands if isinstance(one, Handed))
        atoms = variables(one for one in common.operands if not isinstance(one, Handed))
        needed.update(names[atom] for atom in atoms if atom in names)
    stage.equations = kept[::-1]
