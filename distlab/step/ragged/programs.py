"""A ragged step as several programs: one for each group of replicas, and one for all between them.

A group's program runs on the devices of its replicas only and has no collectives, so groups
don't wait for each other. The program of a common stage reads the outputs of the groups'
programs where they lie on the devices: nothing is copied. Variables that are divided over the
replicas are gathered by a program before all others, and their new values divided by one after.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, final

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from distlab.devices import in_flight, jax_internals
from distlab.devices.jax_internals import plain
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.step.ragged.parts import Boundary, Division, Part, Slot, parts_of
from distlab.step.ragged.stages import Stages

Pieces: TypeAlias = dict[int, list[jax.Array]]
"""The pieces of an array by replica, one for each of its devices."""

Assemble: TypeAlias = Callable[[list[jax.Array]], jax.Array]
"""Makes an array over several devices of its pieces."""


@final
class RaggedPrograms:
    """The programs of one ragged step. Making them lowers them; `compile` compiles them."""

    def __init__(
        self,
        name: str,
        stages: Stages,
        boundary: Boundary,
        mesh: ReplicaMesh,
        arrays: Sequence[jax.Array],
    ) -> None:
        self.programs: list[Any] = []
        self._donated = boundary.donated
        self._shardings = [NamedSharding(mesh.mesh, spec) for _, spec in boundary.inputs]
        self._gathered = _divided(boundary.inputs)
        self._divided = _divided(boundary.outputs)
        self._parts, self._outputs = parts_of(stages, boundary.whole(), mesh, arrays)
        self._lowered = [_lowered(name, part) for part in self._parts]
        if self._gathered:
            given = [arrays[n] for n in self._gathered]
            self._lowered.insert(0, _lowered_move(name, given, [mesh.whole] * len(given)))
        if self._divided:
            made = [self._outputs[n].over(mesh.mesh) for n in self._divided]
            homes = [NamedSharding(mesh.mesh, boundary.outputs[n][1]) for n in self._divided]
            self._lowered.append(_lowered_move(name, made, homes))
        self._assemblers = [
            [jax_internals.assembler(slot.over(part.mesh)) for slot in part.sources]
            for part in self._parts
        ]
        self._output_assemblers = [
            jax_internals.assembler(slot.over(mesh.mesh)) for slot in self._outputs
        ]
        self._replicas = range(mesh.replicas)
        self._end = jax_internals.assembler(
            jax.ShapeDtypeStruct((mesh.replicas,), jnp.uint8, sharding=mesh.split)
        )

    def compile(self) -> RaggedPrograms:
        """Compiles the programs, several at a time; returns the same object."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            self.programs = list(pool.map(lambda lowered: lowered.compile(), self._lowered))
        self._lowered = []
        return self

    def __call__(self, *inputs: list[jax.Array]) -> list[jax.Array]:
        """Dispatches one step. The caller holds `in_flight.dispatching`."""
        values, _, kept, donated = map(iter, inputs)
        arrays = [*values, *(next(donated if d else kept) for d in self._donated[len(inputs[0]) :])]
        for array, sharding in zip(arrays, self._shardings, strict=True):
            own = array.sharding
            if own != sharding and not own.is_equivalent_to(sharding, array.ndim):
                raise ValueError(f"expected an array with {sharding}, got {array.sharding}")
        programs = iter(self.programs)
        if self._gathered:
            _move(next(programs), arrays, self._gathered)
            in_flight.admit(min((arrays[n] for n in self._gathered), key=lambda one: one.size))
        between = _Between(arrays, self._replicas)
        ends: Pieces = {}
        for number, (part, program) in enumerate(zip(self._parts, programs, strict=False)):
            sources = zip(part.sources, self._assemblers[number], strict=True)
            received = [between.over(part, slot.number, assemble) for slot, assemble in sources]
            end, *results = program(*received)
            ends.update(_by_replica(end, part.replicas))
            for slot, result in zip(part.results, results, strict=True):
                between.add(part, slot.number, result)
            if part.common and number + 1 < len(self._parts):
                in_flight.admit(end)  # each program with collectives counts
        outputs = [
            self._output(between, slot, assemble)
            for slot, assemble in zip(self._outputs, self._output_assemblers, strict=True)
        ]
        if self._divided:
            _move(next(programs), outputs, self._divided)
        for array, is_donated in zip(arrays, self._donated, strict=True):
            if is_donated and not array.is_deleted():
                array.delete()
        return [*outputs, self._end(_joined(ends, self._replicas))]

    def _output(self, between: _Between, slot: Slot, assemble: Assemble) -> jax.Array:
        array = between.whole.get(slot.number)
        if array is None:
            array = assemble(_joined(between.pieces(slot.number), self._replicas))
        if slot.generator is None:
            return array
        return jax.random.wrap_key_data(array, impl=slot.generator)


@final
class _Between:
    """The values between the programs of one step, by the number of their slot."""

    def __init__(self, arrays: list[jax.Array], replicas: Sequence[int]) -> None:
        self.whole: dict[int, jax.Array] = dict(enumerate(map(plain, arrays)))
        self._pieces: dict[int, Pieces] = {}
        self._replicas = replicas

    def pieces(self, slot: int) -> Pieces:
        """Returns a value on the devices of each replica."""
        if slot not in self._pieces:
            self._pieces[slot] = _by_replica(self.whole[slot], self._replicas)
        return self._pieces[slot]

    def over(self, part: Part, slot: int, assemble: Assemble) -> jax.Array:
        """Returns a value over the devices of a part."""
        if part.common and slot in self.whole:
            return self.whole[slot]
        return assemble(_joined(self.pieces(slot), part.replicas))

    def add(self, part: Part, slot: int, result: jax.Array) -> None:
        """Adds a value that a part computed; that of one group is a part of a value."""
        if part.common:
            self.whole[slot] = result
            return
        self._pieces.setdefault(slot, {}).update(_by_replica(result, part.replicas))


def _by_replica(array: jax.Array, replicas: Sequence[int]) -> Pieces:
    """Returns the pieces of an array over some replicas' devices."""
    held = jax_internals.pieces(array)
    each = len(held) // len(replicas)
    return {replica: held[n * each : (n + 1) * each] for n, replica in enumerate(replicas)}


def _joined(pieces: Pieces, replicas: Iterable[int]) -> list[jax.Array]:
    return [piece for replica in replicas for piece in pieces[replica]]


def _divided(arrays: list[Division]) -> list[int]:
    return [n for n, (partition, _) in enumerate(arrays) if partition.axis is not None]


def _move(program: Any, arrays: list[jax.Array], positions: list[int]) -> None:
    """Replaces some arrays by those that a program makes of them."""
    for n, moved in zip(positions, program([arrays[n] for n in positions]), strict=True):
        arrays[n] = moved


def _lowered_move(
    name: str, arrays: Sequence[Any], shardings: list[NamedSharding]
) -> jax.stages.Lowered:
    def step(arrays: list[jax.Array]) -> list[jax.Array]:
        return arrays

    step.__name__ = name
    given = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding) for a in arrays]
    return jax.jit(step, out_shardings=shardings).lower(given)


def _lowered(name: str, part: Part) -> jax.stages.Lowered:
    def on_replica(*blocks: jax.Array) -> list[jax.Array]:
        values = [slot.value(block) for slot, block in zip(part.sources, blocks, strict=True)]
        results = zip(part.results, part.compute(values), strict=True)
        return [jnp.zeros(1, jnp.uint8), *(slot.stored(value) for slot, value in results)]

    mapped = jax.shard_map(
        on_replica,
        mesh=part.mesh,
        axis_names={AXIS},
        in_specs=tuple(slot.partition.spec for slot in part.sources),
        out_specs=[PartitionSpec(AXIS), *(slot.partition.spec for slot in part.results)],
        check_vma=False,
    )

    def step(*arrays: jax.Array) -> list[jax.Array]:
        outputs: list[jax.Array] = mapped(*arrays)
        return outputs

    step.__name__ = name
    specs = [PartitionSpec(AXIS), *(slot.spec for slot in part.results)]
    out = [NamedSharding(part.mesh, spec) for spec in specs]
    return jax.jit(step, out_shardings=out).lower(*[slot.over(part.mesh) for slot in part.sources])
