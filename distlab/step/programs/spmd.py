"""A replica function mapped over the mesh: one JAX function for all replicas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import TracedCollectives
from distlab.devices.layouts import ROWS, WHOLE, Partition
from distlab.devices.mesh import AXIS
from distlab.errors import StructureError, UnsupportedError
from distlab.step.arguments.leaves import Arguments, Leaf, leaf_of
from distlab.step.functions.arrays import constant, require_usable, whole_on
from distlab.step.jaxprs import operations
from distlab.step.jaxprs.flat import flattened
from distlab.step.jaxprs.without_mesh import without_mesh
from distlab.step.programs.agreement import Agreement, is_same_on_all
from distlab.step.programs.divided import Input, evaluate
from distlab.step.programs.trace import LocalTrace, trace, traced_constants, with_inputs
from distlab.step.ragged import switch as ragged
from distlab.step.ragged.parts import Boundary, can_be_parted
from distlab.step.ragged.programs import RaggedPrograms
from distlab.step.ragged.schedule import divide
from distlab.step.ragged.stages import Group, InputSlice, Stages
from distlab.text.shown import shown
from distlab.values.checks import function_name
from distlab.values.distributed import Mirrored, PerReplica, Shape
from distlab.values.padding import common_shape
from distlab.variables.variable import Variable


@final
class SpmdFunction:
    """A function of variables' values and arrays that computes a step on all replicas."""

    def __init__(self, fn: Callable[..., Any], arguments: Arguments, host: CollectiveHost) -> None:
        mesh = host.mesh
        self._function = function_name(fn)
        firsts, group_of = _group_replicas(arguments, mesh.replicas)
        self.traces = _trace_groups(fn, arguments, host, firsts, group_of)
        _require_same_results(self.traces)
        self.outside = traced_constants(self.traces)
        self.leaves = arguments.dynamic()
        if self.outside:
            self.traces = [with_inputs(one, self.outside, mesh) for one in self.traces]
            self.leaves += [leaf_of(one, "a traced value", mesh) for one in self.outside]
        self._group_of = group_of
        self.ragged = len(firsts) > 1
        self._mesh = mesh
        self.replicas = mesh.replicas
        self._alone = mesh.replicas == 1
        self.written = self.traces[0].written
        self.updates = self.traces[0].updates
        self.computed = self.traces[0].computed
        self.read = tuple(dict.fromkeys(v for t in self.traces for v in t.read if v is not None))
        self._stages: Stages | None = None
        if self.ragged:
            members = [
                tuple(replica for replica, own in enumerate(group_of) if own == group)
                for group in range(len(firsts))
            ]
            self._stages = divide(
                [
                    _group(local, self.read, self.leaves, of_group, mesh.replicas)
                    for local, of_group in zip(self.traces, members, strict=True)
                ]
            )
        self.agreement: Agreement | None = None
        if not self._alone:
            groups = self._stages.groups if self._stages is not None else []
            self.agreement = Agreement(self._function, self.traces, groups, self.read, self.leaves)
        # What XLA adds along the model axis would hang in a branch of some replicas alone.
        apart = self.agreement is not None and self.agreement.parts_ways and mesh.model > 1
        self._by_itself = self.ragged or apart  # divides arrays along all axes
        if apart and not self.ragged:
            (local,) = self.traces
            self.traces = [local._replace(jaxpr=without_mesh(local.jaxpr), on_mesh=False)]
        # Programs of some replicas alone have not all processes, so one program has all shapes.
        stages = self._stages
        one_each = not (mesh.shared or apart)
        self.parted = stages is not None and one_each and can_be_parted(stages)
        partitions = map(_partition, (*self.read, *self.written))
        self._divided = any(partition.axis is not None for partition in partitions)
        if apart and self._divided and not self.ragged:
            raise UnsupportedError(
                f"{self._function} has a branch or loop that some replicas alone may run, and "
                "variables divided over the replicas beside a model axis. Use shard_variables or "
                "model_axis, not both."
            )
        self.waits = self.ragged or self._divided
        self.waits = self.waits or any(_may_wait(local.jaxpr.jaxpr) for local in self.traces)
        self.overwritten = self._overwritten()
        self._out = [
            _padded_shape(column) for column in zip(*map(_out_shapes, self.traces), strict=True)
        ]
        one = self._alone and mesh.model > 1
        self._mapped = self._over_devices_of_one if one else self._over_replicas()
        # `jax.grad` and the like would compile each operation of the step by itself.
        self._inline = jax.jit(self._mapped)

    def __call__(self, values: list[Any], arrays: list[Any]) -> list[jax.Array]:
        """Computes the step on all replicas."""
        return self._mapped(values, arrays)

    def inline(self, arrays: list[Any]) -> list[jax.Array]:
        """Computes the step as a part of what JAX is tracing; the function has no variables."""
        return self._inline([], [*arrays, *self.outside])

    def programs(
        self, name: str, values: list[jax.Array], arrays: list[jax.Array], donated: list[bool]
    ) -> RaggedPrograms:
        """Returns the step as a program for each group of replicas, and programs for all."""
        assert self._stages is not None
        inputs = [(_partition(variable), _spec(variable)) for variable in self.read]
        inputs += [(leaf.partition, leaf.partition.spec) for leaf in self.leaves]
        outputs = list(zip(self._out_partitions(_partition), self.out_specs(), strict=True))
        donates = [*[False] * len(values), *donated]
        boundary = Boundary(inputs, outputs, self._out_shapes(), donates)
        try:
            return RaggedPrograms(name, self._stages, boundary, self._mesh, [*values, *arrays])
        except (ValueError, NotImplementedError) as error:
            require_usable(self._function, self._constants(), error)
            raise

    def operand_kinds(self) -> list[tuple[Shape, np.dtype]]:
        """Returns the shape and the type of each operand of `updates`."""
        first = self.computed + len(self.written)
        avals = self.traces[0].jaxpr.out_avals
        return [
            (shape, np.dtype(aval.dtype))
            for shape, aval in zip(self._out_shapes()[first:], avals[first:], strict=True)
        ]

    def exchanges(self) -> list[str]:
        """Returns the collectives of the step in order, and the shapes of its results, as text."""
        return [
            text
            for local in self.traces
            for text in (
                *operations.collectives_in(local.jaxpr.jaxpr),
                *(aval.str_short() for aval in local.jaxpr.out_avals),
            )
        ]

    def wraps(self) -> list[Callable[[jax.Array], Any] | None]:
        """Returns for each computed leaf what makes a value of it; None for a plain array."""
        return [None if self._alone else self._wrap(n) for n in range(self.computed)]

    def _wrap(self, position: int) -> Callable[[jax.Array], Any]:
        first = self.traces[0]
        if first.declared[position] is not None:
            return Mirrored
        shapes = self._ragged_shapes(position)
        wrap = PerReplica if shapes is None else functools.partial(PerReplica, shapes=shapes)
        if first.one[position]:
            return lambda array: wrap(array).values[0]
        return wrap

    def _over_replicas(self) -> Callable[..., list[jax.Array]]:
        mesh = self._mesh
        return jax.shard_map(
            self._on_replica,
            mesh=mesh.mesh,
            in_specs=(
                [self._inside(variable).spec for variable in self.read],
                [leaf.partition.spec for leaf in self.leaves],
            ),
            out_specs=[partition.spec for partition in self._out_partitions(self._inside)],
            axis_names={*mesh.mesh.axis_names} if self._by_itself else {AXIS},
            check_vma=False,  # else gradients of whole inputs are summed over the replicas
        )

    def _over_devices_of_one(self, values: list[Any], arrays: list[Any]) -> list[jax.Array]:
        """Computes the step on one replica's devices, with a name for the axis of the replicas."""
        replica = jax.vmap(self._on_replica, None, 0, axis_name=AXIS, axis_size=1)
        with self._mesh.seen_by_a_replica():
            return [rows[0] for rows in replica(values, arrays)]

    def _on_replica(self, values: list[Any], arrays: list[Any]) -> list[jax.Array]:
        """Computes one replica's step on its blocks of the global arrays."""
        try:
            if self._divided and self._stages is None:
                return self._in_parts(values, arrays)
            own_values = [self._inside(v).local(b) for v, b in zip(self.read, values, strict=True)]
            own = [leaf.partition.local(b) for leaf, b in zip(self.leaves, arrays, strict=True)]
            if self._stages is not None:
                inputs = [*own_values, *own]
                outputs = ragged.evaluate(self._stages, self._group_of, inputs, self._out_shapes())
            else:
                first, by_variable = self.traces[0], dict(zip(self.read, own_values, strict=True))
                inputs = [*(None if v is None else by_variable[v] for v in first.read), *own]
                constants = map(constant, first.jaxpr.consts)
                outputs = jax.core.eval_jaxpr(first.jaxpr.jaxpr, list(constants), *inputs)
            return [
                partition.block(out)
                for partition, out in zip(self._out_partitions(self._inside), outputs, strict=True)
            ]
        except (ValueError, NotImplementedError) as error:
            require_usable(self._function, self._constants(), error)
            raise

    def _in_parts(self, values: list[Any], arrays: list[Any]) -> list[jax.Array]:
        """Computes one replica's blocks, of divided variables its part alone where it can."""
        first, blocks = self.traces[0], dict(zip(self.read, values, strict=True))
        inputs = [
            None if one is None else Input(_partition(one), blocks[one], is_same_on_all(one))
            for one in first.read
        ]
        for leaf, block in zip(self.leaves, arrays, strict=True):
            inputs.append(Input(leaf.partition, block, leaf.partition is WHOLE))
        constants = [constant(one) for one in first.jaxpr.consts]
        outputs = self._out_partitions(_partition)
        return evaluate(first.jaxpr, constants, inputs, outputs, self.replicas)

    def _constants(self) -> list[Any]:
        return [constant for local in self.traces for constant in local.jaxpr.consts]

    def _overwritten(self) -> frozenset[Variable]:
        """Returns no variable when the step may fail or stop between two of them.

        Python functions that the devices call might read a variable, and random keys pass
        through Python code of JAX, where an interrupt would lose them. So it would between
        the programs of a ragged step.
        """
        if self.parted:
            return frozenset()
        for local in self.traces:
            keys = any(jnp.issubdtype(a.dtype, jax.dtypes.extended) for a in local.jaxpr.out_avals)
            if keys or operations.calls_python(local.jaxpr.jaxpr):
                return frozenset()
        return frozenset(self.read) & frozenset(self.written)

    def _out_shapes(self) -> list[Shape]:
        return [largest for largest, _ in self._out]

    def _inside(self, variable: Variable) -> Partition:
        """Returns how one program of all replicas divides a variable."""
        layout = variable.storage.layout
        return layout.along_all_axes if self._by_itself else layout.partition

    def _out_partitions(self, of: Callable[[Variable], Partition]) -> list[Partition]:
        results = [
            ROWS if declared is None and not self._alone else WHOLE
            for declared in self.traces[0].declared
        ]
        operands = [WHOLE] * sum(count for _, _, count in self.updates)
        return [*results, *map(of, self.written), *operands]

    def out_specs(self) -> list[PartitionSpec]:
        """Returns how the outputs lie on the mesh, also along the model axis."""
        specs = [partition.spec for partition in self._out_partitions(_partition)]
        written = slice(self.computed, self.computed + len(self.written))
        specs[written] = map(_spec, self.written)
        return specs

    def _ragged_shapes(self, number: int) -> tuple[Shape, ...] | None:
        _, by_group = self._out[number]
        return None if by_group is None else tuple(by_group[g] for g in self._group_of)


def _may_wait(jaxpr: Any) -> bool:
    """Returns whether a jaxpr communicates, calls Python, or does what jaxprs do not show."""
    return operations.collective_in(jaxpr) is not None or operations.reaches_out(jaxpr)


def _group_replicas(arguments: Arguments, replicas: int) -> tuple[list[int], list[int]]:
    """Returns the first replica of each group of equal shapes, and each replica's group."""
    signatures = [
        tuple(leaf.shapes[replica] for leaf in arguments.dynamic()) for replica in range(replicas)
    ]
    distinct = list(dict.fromkeys(signatures))
    return [signatures.index(s) for s in distinct], [distinct.index(s) for s in signatures]


def _trace_groups(
    fn: Callable[..., Any],
    arguments: Arguments,
    host: CollectiveHost,
    firsts: list[int],
    group_of: list[int],
) -> list[LocalTrace]:
    """Traces `fn` for each group of replicas, in rounds, each with the results of the one before.

    The trace of one group depends on the others: on the shapes that they gather, and on the Python
    numbers that they reduce or return. What `fn` makes in the first round, the second one finds.
    """
    gathered: list[list[Shape]] = []
    passed_on: frozenset[int] = frozenset()
    as_arrays: frozenset[int] = frozenset()
    may_make = True
    on_mesh = host.mesh.model > 1 and len(firsts) == 1
    while True:
        traces: list[LocalTrace] = []
        shapes_by_group: list[list[Shape]] = []
        numbers_by_group: list[list[complex]] = []
        failures: list[tuple[Exception, int]] = []
        made = False
        for replica in firsts:
            collectives = TracedCollectives(
                host.mesh.by_process, host.cross_device_ops, gathered, passed_on
            )
            collectives.may_make = may_make
            try:
                local = trace(
                    fn,
                    arguments,
                    host,
                    replica,
                    collectives=collectives,
                    as_arrays=as_arrays,
                    on_mesh=on_mesh,
                )
                traces.append(local)
            except Exception as error:  # noqa: BLE001 - raised below, unless shapes explain it
                failures.append((error, replica))
            shapes_by_group.append(collectives.gathered)
            numbers_by_group.append(collectives.numbers)
            made = made or bool(collectives.made)
        found = [[shapes[g] for g in group_of] for shapes in zip(*shapes_by_group, strict=False)]
        numbers = _differing(numbers_by_group)
        settled = len(firsts) == 1 or (found == gathered and numbers <= passed_on)
        may_make = False
        if failures and settled:
            failure, replica = failures[0]
            arguments.explain_replica(failure, replica)
            raise failure
        differing = _differing_numbers(traces)
        found_on_mesh = len(traces) == 1 and whole_on(host.mesh.mesh, traces[0].jaxpr.consts)
        known = differing <= as_arrays and found_on_mesh <= on_mesh
        if not failures and settled and known and not made:
            return traces
        on_mesh = on_mesh or found_on_mesh
        gathered, passed_on = found, passed_on | numbers
        as_arrays |= differing


def _differing(numbers: list[list[complex]]) -> frozenset[int]:
    """Returns the positions of numbers that differ between groups."""
    columns = enumerate(zip(*numbers, strict=False))
    return frozenset(n for n, column in columns if len(set(map(repr, column))) > 1)


def _differing_numbers(traces: list[LocalTrace]) -> frozenset[int]:
    """Returns the positions of results that are different Python numbers on different groups."""
    if len({t.results for t in traces}) != 1:
        return frozenset()
    return frozenset(
        position
        for position, leaves in enumerate(zip(*(t.static for t in traces), strict=True))
        if any(leaf != leaves[0] for leaf in leaves)
        and all(leaf is None or isinstance(leaf[0], bool | int | float) for leaf in leaves)
    )


def _require_same_results(traces: list[LocalTrace]) -> None:
    """Checks that all groups return the same structure and assign the same variables."""
    first = traces[0]
    for other in traces[1:]:
        if other.results == first.results and other.static != first.static:
            pairs = zip(first.static, other.static, strict=True)
            mine, theirs = next((a, b) for a, b in pairs if a != b)
            raise StructureError(
                "All replicas must return the same of what is not computed, but with the different "
                f"shapes of this step one returns {_not_computed(mine)} and another "
                f"{_not_computed(theirs)}. Return numbers as arrays, or leave out what differs."
            )
        if (other.results, other.declared) != (first.results, first.declared):
            raise StructureError(
                "All replicas must return the same structure, but with the different shapes of "
                f"this step the function returns {first.results} on some replicas and "
                f"{other.results} on others. Return arrays of size 0 instead of None."
            )
        if other.written != first.written:
            raise StructureError(
                "All replicas must assign the same variables, but with the different shapes of "
                f"this step some assign {[v.name for v in first.written]} and others "
                f"{[v.name for v in other.written]}. Assign them on every replica."
            )
        for mine, theirs in zip(first.jaxpr.out_avals, other.jaxpr.out_avals, strict=True):
            if mine.dtype != theirs.dtype:
                raise StructureError(
                    "Each result must have one dtype on all replicas, got "
                    f"{mine.str_short()} and {theirs.str_short()}. Convert it on every replica."
                )


def _not_computed(leaf: tuple[Any] | None) -> str:
    return "an array that it computes" if leaf is None else shown(leaf[0])


def _group(
    local: LocalTrace,
    read: tuple[Variable, ...],
    leaves: list[Leaf],
    members: tuple[int, ...],
    replicas: int,
) -> Group:
    """Returns a group of replicas, with the sources of its jaxpr's inputs."""
    positions = {variable: position for position, variable in enumerate(read)}
    inputs: list[InputSlice | None] = [
        None if variable is None else InputSlice(positions[variable], variable.shape)
        for variable in local.read
    ]
    inputs += [
        InputSlice(position, leaf.shapes[members[0]])
        for position, leaf in enumerate(leaves, start=len(read))
    ]
    return Group(flattened(local.jaxpr, replicas), inputs, members)


def _out_shapes(local: LocalTrace) -> list[Shape]:
    return [tuple(aval.shape) for aval in local.jaxpr.out_avals]


def _padded_shape(shapes: tuple[Shape, ...]) -> tuple[Shape, tuple[Shape, ...] | None]:
    """Returns the shape that all groups' shapes fit in, and the shapes when they differ."""
    return common_shape(shapes), None if len(set(shapes)) == 1 else shapes


def _partition(variable: Variable) -> Partition:
    return variable.storage.layout.partition


def _spec(variable: Variable) -> PartitionSpec:
    return variable.storage.layout.along_all_axes.spec
