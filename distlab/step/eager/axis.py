"""JAX's collectives by the name of the axis, in functions that run as ordinary Python.

Programs that `run` compiles have the axis "replica" bound by `jax.shard_map`. Here the name is
bound while Python runs, once for each replica: an operation over the axis (`jax.lax.psum`, or a
`jax.jit` or `jax.lax.scan` with one inside) waits for the other replicas and runs as one program
on all of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, final

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, set_current_trace
from jax.extend.core.primitives import axis_index_p, jit_p
from jax.sharding import PartitionSpec

from distlab.devices import dispatch_order, in_flight, jax_internals
from distlab.devices.key_data import bits
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.errors import ContextError, StructureError, ValueShapeError
from distlab.step.jaxprs import operations as jaxprs
from distlab.step.jaxprs.divergence import OWN, require_reached
from distlab.values.distributed import PerReplica, stack

_WAYS_OUT: Final = "Reduce over the batch before it, outside of loops over its rows."


class Operation(NamedTuple):
    """An operation of JAX, as far as its name and parameters go; an equation outside of a jaxpr."""

    primitive: Primitive
    params: dict[str, Any]
    ctx: None = None
    effects: tuple[()] = ()

    def __str__(self) -> str:
        """Names it as in the user's program."""
        if self.primitive is jit_p:
            return f"jax.jit of {self.params.get('name', 'a function')}"
        return f"jax.lax.{self.primitive.name}"


Meet = Callable[[Operation, list[jax.Array]], Sequence[jax.Array]]
"""Returns one replica's results of an operation of all replicas, from its operands."""


Differ = Callable[[complex], bool]
"""Returns whether replicas pass different Python numbers."""


class _Replica(NamedTuple):
    number: int
    meet: Meet
    differ: Differ


_running: ContextVar[_Replica | None] = ContextVar("distlab_eager_axis", default=None)


@contextlib.contextmanager
def bound(replicas: int, number: int, meet: Meet, differ: Differ) -> Iterator[None]:
    """Binds the name of the axis of replicas, while one replica's Python runs."""
    token = _running.set(_Replica(number, meet, differ))
    try:
        with (
            jax_internals.named_axis(AXIS, replicas),
            jax_internals.sums_of_numbers(AXIS, _differs),
            set_current_trace(_trace),
        ):
            yield
    finally:
        _running.reset(token)


def joined(
    operations: Sequence[Operation], operands: Sequence[Sequence[jax.Array]], mesh: ReplicaMesh
) -> tuple[Known, list[jax.Array]]:
    """Returns the operation that all replicas have reached, and its stacked operands."""
    columns = list(zip(*operands, strict=False))
    for column in columns:
        kinds = list(dict.fromkeys(f"{array.dtype}{list(array.shape)}" for array in column))
        if len(kinds) > 1:
            raise ValueShapeError(
                f"{operations[0]} over the axis {AXIS!r} needs the same shapes on all replicas, "
                f"got {' and '.join(kinds)}. {_WAYS_OUT}"
            )
    keys = [
        (jaxprs.key(operation, (), derivatives=False), len(own))
        for operation, own in zip(operations, operands, strict=True)
    ]
    if any(key != keys[0] for key in keys):
        raise ContextError(
            f"{operations[0]} communicates over the axis {AXIS!r}, and is not the same on all "
            "replicas: numbers or arrays from outside of its function differ, or it prints or "
            "calls Python. Pass what differs as an argument, or leave out jit and scan where "
            "functions run eagerly."
        )
    values = [stack(column, mesh) for column in columns]
    if any(value.shapes is not None for value in values):  # other processes' differ
        raise ValueShapeError(
            f"{operations[0]} over the axis {AXIS!r} needs the same shapes on all workers, got "
            f"{[value.brief() for value in values]}. {_WAYS_OUT}"
        )
    known = Known(keys[0], operations[0])
    if _may_diverge(known, len(columns)):
        differ = [len(set(map(bits, column))) > 1 for column in columns]
        require_reached(operations[0], [OWN if one else 0 for one in differ])
    return known, [value.stacked for value in values]


def run(known: Known, stacked: Sequence[jax.Array], mesh: ReplicaMesh) -> list[list[jax.Array]]:
    """Runs an operation as one program; returns each local replica's results, on its device."""
    program = _program(known, mesh)
    in_flight.require_sound()
    with in_flight.dispatching:
        if mesh.shared:
            dispatch_order.note(str(known.operation), [f"{a.dtype}{a.shape}" for a in stacked])
        results = program(*stacked)
        if results:
            in_flight.admit(results[-1])
    rows = [PerReplica(result).values for result in results]
    return [[column[n] for column in rows] for n in range(len(mesh.local_replicas))]


@final
class Known:
    """An operation that is found again by its key."""

    def __init__(self, key: Hashable, operation: Operation) -> None:
        self.key = key
        self.operation = operation

    def __hash__(self) -> int:
        """Returns the hash of the key."""
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        """Returns whether both compute the same."""
        return isinstance(other, Known) and self.key == other.key


@functools.lru_cache(maxsize=128)
def _may_diverge(known: Known, operands: int) -> bool:
    """Returns whether some replicas may skip a collective, depending on the operands' values."""
    try:
        require_reached(known.operation, [OWN] * operands)
    except StructureError:
        return True
    return False


@functools.lru_cache(maxsize=128)
def _program(known: Known, mesh: ReplicaMesh) -> Callable[..., list[jax.Array]]:
    """Returns the compiled program of an operation: stacked operands to stacked results."""
    primitive, params = known.operation.primitive, known.operation.params

    def local(*rows: jax.Array) -> list[jax.Array]:
        results = primitive.bind(*(row[0] for row in rows), **params)
        return [result[None] for result in (results if primitive.multiple_results else [results])]

    spec = PartitionSpec(AXIS)
    mapped = jax.shard_map(local, mesh=mesh.mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(mapped)


def _differs(value: Any) -> bool:
    """Returns whether a value that is not traced may differ between replicas."""
    replica = _running.get()
    if replica is None:
        return False
    if type(value) is not int:
        return True
    # What is staged may be a program that JAX keeps, for all replicas: 1 stands for their number.
    return value != 1 if jax_internals.being_staged() else replica.differ(value)


@final
class _ReplicaTrace(jax_internals.EvalTrace):  # type: ignore[misc]
    """Computes at once, as JAX does, except for operations over the axis of the replicas."""

    def __init__(self) -> None:
        super().__init__()
        # Objects of Flax NNX may be changed by the trace that made them alone: this one is that.
        jax_internals.count_as_eval_trace(self)

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        replica = _running.get()
        if replica is None:
            return super().process_primitive(primitive, args, params)
        if primitive is axis_index_p and params.get("axis_name") == AXIS:
            with jax_internals.outside_of_traces():  # JAX 0.12 has no trace meanwhile
                return jnp.int32(replica.number)
        operation = Operation(primitive, params)
        has_jaxprs = bool(jaxprs.inner_jaxprs(operation))
        if not (_communicates if has_jaxprs else jaxprs.is_collective)(operation):
            if has_jaxprs and _reads_number(operation):
                params = jaxprs.numbered(params, replica.number)
            return super().process_primitive(primitive, args, params)
        token = _running.set(None)  # the program of all replicas computes as JAX does
        try:
            with jax_internals.outside_of_traces():
                results = replica.meet(operation, [jnp.asarray(operand) for operand in args])
        finally:
            _running.reset(token)
        return list(results) if primitive.multiple_results else results[0]


_trace: Final = _ReplicaTrace()
"""The only one, of all threads."""


def _communicates(operation: Operation) -> bool:
    return any(map(_has_collective, jaxprs.inner_jaxprs(operation)))


def _reads_number(operation: Operation) -> bool:
    return any(map(_has_number, jaxprs.inner_jaxprs(operation)))


@functools.lru_cache(maxsize=256)
def _has_collective(jaxpr: Any) -> bool:
    return jaxprs.collective_in(jaxpr) is not None


@functools.lru_cache(maxsize=256)
def _has_number(jaxpr: Any) -> bool:
    return jaxprs.reads_replica_id(jaxpr)
