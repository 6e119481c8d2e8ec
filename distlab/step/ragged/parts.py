"""The programs that a ragged step consists of: what each computes, receives and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from distlab.devices import jax_internals
from distlab.devices.jax_internals import plain
from distlab.devices.key_data import is_key
from distlab.devices.layouts import ROWS, WHOLE, Partition
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.step.jaxprs import operations
from distlab.step.ragged.stages import Handed, Stages, Values, variables
from distlab.values.distributed import Shape
from distlab.values.padding import padded

SlotKey: TypeAlias = tuple[Any, ...]
"""The key of a value between programs: `("input", position)`, `("output", position)`,
`("handed", number)`, `("common", variable)` or `("own", group, variable)`."""

Compute: TypeAlias = Callable[[dict[SlotKey, Any]], dict[SlotKey, jax.Array]]
"""Computes a replica's values from others."""


Division: TypeAlias = tuple[Partition, PartitionSpec]
"""A division of an array over the replicas, and over the devices of each."""


class Boundary(NamedTuple):
    """The inputs and outputs of a step."""

    inputs: list[Division]
    outputs: list[Division]
    shapes: list[Shape]  # on one replica, padded
    donated: list[bool]  # inputs that the step deletes

    def whole(self) -> Boundary:
        """Returns the same with copies instead of what is divided over the replicas."""
        return self._replace(inputs=_whole(self.inputs), outputs=_whole(self.outputs))


def _whole(arrays: list[Division]) -> list[Division]:
    return [one if one[0].axis is None else (WHOLE, WHOLE.spec) for one in arrays]


class Slot(NamedTuple):
    """A value that programs receive or return, as an array over their devices."""

    number: int
    partition: Partition
    spec: PartitionSpec  # of the array, also along the model axis
    block: jax.ShapeDtypeStruct
    generator: str | None  # of random keys, which lie in the array as plain numbers

    def value(self, block: jax.Array) -> Any:
        """Returns a replica's value from its block."""
        if self.generator is not None:
            block = jax.random.wrap_key_data(block, impl=self.generator)
        return self.partition.local(block)

    def stored(self, value: jax.Array) -> Any:
        """Returns the block that stores a replica's value."""
        block = self.partition.block(value)
        return block if self.generator is None else jax.random.key_data(block)

    def over(self, mesh: Mesh) -> jax.ShapeDtypeStruct:
        """Returns the shape, dtype and sharding of the array over the devices of a mesh."""
        shape = list(self.block.shape)
        for axis, name in enumerate(self.partition.spec):
            if name == AXIS:
                shape[axis] *= mesh.shape[AXIS]
        sharding = NamedSharding(mesh, self.spec)
        return jax.ShapeDtypeStruct(tuple(shape), self.block.dtype, sharding=sharding)


class Part(NamedTuple):
    """One program of a ragged step."""

    replicas: tuple[int, ...]
    mesh: Mesh
    common: bool  # on all replicas, with collectives
    sources: list[Slot]
    results: list[Slot]
    compute: Callable[[list[Any]], list[jax.Array]]


def can_be_parted(stages: Stages) -> bool:
    """Returns whether the groups of a step can run as programs of their own.

    Not if a call or loop reads the replica's number: a program of some replicas counts only those.
    """
    return not any(
        operations.calls_replica_id(equation)
        for stage in stages.own
        for equations in stage.equations
        for equation in equations
    )


def parts_of(
    stages: Stages, boundary: Boundary, mesh: ReplicaMesh, arrays: Sequence[Any]
) -> tuple[list[Part], list[Slot]]:
    """Returns the programs of a step, in the order of dispatch."""
    planner = _Planner(stages, boundary, mesh, arrays)
    return planner.parts, planner.outputs()


@final
class _Planner:
    """Maker of the parts of a step, and the slots between them."""

    def __init__(
        self, stages: Stages, boundary: Boundary, mesh: ReplicaMesh, arrays: Sequence[Any]
    ) -> None:
        self._stages = stages
        self._boundary = boundary
        self._mesh = mesh
        self._slots: dict[SlotKey, Slot] = {}
        for position, (array, division) in enumerate(zip(arrays, boundary.inputs, strict=True)):
            self._add_input(position, array, *division)
        self.parts: list[Part] = []
        for number in range(len(stages.own)):
            for group in range(len(stages.groups)):
                ends = number == len(stages.own) - 1 and not self._has_part(group)
                if stages.is_needed(number, group) or ends:
                    self._add_own(number, group)
            if number < len(stages.common):
                self._add_common(number)

    def _has_part(self, group: int) -> bool:
        """Returns whether a part shows when the group's replicas are done."""
        first = self._stages.groups[group].replicas[0]
        return any(first in part.replicas for part in self.parts)

    def outputs(self) -> list[Slot]:
        """Returns the slots of the step's outputs."""
        return [self._slots["output", n] for n in range(len(self._boundary.outputs))]

    def _add_input(
        self, position: int, array: Any, partition: Partition, spec: PartitionSpec
    ) -> None:
        data = plain(array)
        shape = NamedSharding(self._mesh.mesh, partition.spec).shard_shape(data.shape)
        generator = jax_internals.key_impl(array.dtype) if is_key(array) else None
        block = jax.ShapeDtypeStruct(shape, data.dtype)
        self._slots["input", position] = Slot(len(self._slots), partition, spec, block, generator)

    def _slot(self, key: SlotKey, aval: Any) -> Slot:
        """Returns the slot of a value that a part computes."""
        if key not in self._slots:
            partition, spec, shape = ROWS, ROWS.spec, aval.shape
            if key[0] == "output":
                partition, spec = self._boundary.outputs[key[1]]
                shape = self._boundary.shapes[key[1]]
            generator = jax_internals.key_impl(aval.dtype) if is_key(aval) else None
            slot = Slot(len(self._slots), partition, spec, aval, generator)
            block = jax.eval_shape(slot.stored, jax.ShapeDtypeStruct(shape, aval.dtype))
            self._slots[key] = slot._replace(block=block)
        return self._slots[key]

    def _add(
        self,
        replicas: tuple[int, ...],
        sources: list[SlotKey],
        results: dict[SlotKey, Any],
        compute: Compute,
        *,
        common: bool,
    ) -> None:
        returned = [self._slot(key, aval) for key, aval in results.items()]

        def of_lists(values: list[Any]) -> list[jax.Array]:
            computed = compute(dict(zip(sources, values, strict=True)))
            return [computed[key] for key in results]

        mesh = self._mesh.mesh if common else self._mesh.of(replicas)
        received = [self._slots[key] for key in sources]
        self.parts.append(Part(replicas, mesh, common, received, returned, of_lists))

    def _add_own(self, number: int, group: int) -> None:
        stages, shapes = self._stages, self._boundary.shapes
        stage, own = stages.own[number], stages.groups[group]
        names, given = stages.common_values[group], stages.given(number, group)
        positions = {
            var: source.position
            for var, source in zip(own.jaxpr.jaxpr.invars, own.inputs, strict=True)
            if source is not None
        }
        consts = set(own.jaxpr.jaxpr.constvars)
        defined = {var for equation in stage.equations[group] for var in equation.outvars}
        read = [atom for equation in stage.equations[group] for atom in equation.invars]

        def key_of(var: Any) -> SlotKey:
            if var in positions:
                return "input", positions[var]
            return ("common", names[var]) if var in names else ("own", group, var)

        free = dict.fromkeys(variables([*read, *given]))
        keys = {var: key_of(var) for var in free if var not in defined and var not in consts}
        sources = list(dict.fromkeys(keys.values()))
        before = set(stage.live[group])
        carried = [var for var in stages.live_after(number, group) if var not in before]
        results: dict[SlotKey, Any] = {("handed", n): None for n in stage.handed}
        results |= {("output", n): None for n in stage.outputs}
        results = {key: atom.aval for key, atom in zip(results, given, strict=True)}
        results |= {("own", group, var): var.aval for var in carried}
        replica_ids = np.array(own.replicas, np.int32)

        def compute(known: dict[SlotKey, Any]) -> dict[SlotKey, jax.Array]:
            inputs = [known.get(("input", n)) for n in range(len(self._boundary.inputs))]
            values = own.values(inputs)
            values |= {var: known[key] for var, key in keys.items() if key[0] != "input"}
            replica_id = jnp.asarray(replica_ids)[jax.lax.axis_index(AXIS)]
            made = stages.evaluate_own(number, group, values, replica_id)
            for at, position in enumerate(stage.outputs, start=len(stage.handed)):
                made[at] = padded(made[at], shapes[position])
            return dict(zip(results, [*made, *(values[var] for var in carried)], strict=True))

        self._add(own.replicas, sources, results, compute, common=False)

    def _add_common(self, number: int) -> None:
        """Adds the part of all replicas in a common stage."""
        stages, stage = self._stages, self._stages.common[number]
        first, names = stages.groups[0], stages.common_values[0]
        positions = {
            var: source.position
            for var, source in zip(first.jaxpr.jaxpr.invars, first.inputs, strict=True)
            if source is not None
        }
        defined = {names[var] for one in stage.equations for var in one.equation.outvars}
        sources: dict[SlotKey, None] = {}
        for operand in (operand for one in stage.equations for operand in one.operands):
            if isinstance(operand, Handed):
                sources["handed", operand.number] = None
            for atom in [] if isinstance(operand, Handed) else variables([operand]):
                if atom in positions:
                    sources["input", positions[atom]] = None
                elif atom in names and names[atom] not in defined:
                    sources["common", names[atom]] = None
        results: dict[SlotKey, Any] = {
            ("output", n): stages.outputs[n][0].aval for n in stage.outputs
        }
        results |= {("common", var): var.aval for var in stage.results}

        def compute(known: dict[SlotKey, Any]) -> dict[SlotKey, jax.Array]:
            inputs = [known.get(("input", n)) for n in range(len(self._boundary.inputs))]
            values: Values = first.values(inputs)
            values |= {key[1]: value for key, value in known.items() if key[0] == "common"}
            handed = {key[1]: value for key, value in known.items() if key[0] == "handed"}
            made = stages.evaluate_common(number, values, handed)
            return dict(zip(results, [*made, *(values[var] for var in stage.results)], strict=True))

        self._add(tuple(range(self._mesh.replicas)), list(sources), results, compute, common=True)
