"""Running a replica function as ordinary Python, once for each replica.

Each replica has a thread, and waits for the others at a collective or a
`merge_call`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.collectives.host import CollectiveHost
from distlab.collectives.reducing import calls, report
from distlab.collectives.rows import on_first_device
from distlab.collectives.shapes import gather_axis, require_joinable
from distlab.context import scopes
from distlab.context.host import Host
from distlab.context.replica_context import ReplicaContext
from distlab.devices.jax_internals import being_staged
from distlab.devices.mesh import AXIS
from distlab.errors import ContextError, StructureError, ValueShapeError
from distlab.processes import group
from distlab.step.arguments import in_place
from distlab.step.eager import axis as eager_axis
from distlab.step.eager.rendezvous import (
    ProcessMeeting,
    Rendezvous,
    ReplicaThread,
    run_in_turn,
    unwind,
)
from distlab.step.functions.state import captured_state
from distlab.step.programs.results import regroup, select, to_device
from distlab.step.programs.trace import explain_axis
from distlab.values.checks import code_of, require_components, require_plain
from distlab.values.distributed import (
    DistributedValues,
    PerReplica,
    Shape,
    replica_shapes,
    stack,
)
from distlab.values.reduce_op import ReduceOp
from distlab.values.texts import are_texts
from distlab.variables import frames
from distlab.variables.protocol import StoredVariable
from distlab.variables.storage import Storage
from distlab.variables.variable import live


def run(
    host: CollectiveHost,
    fn: Callable[..., Any],
    args: Any,
    kwargs: Any,
    assigned: dict[StoredVariable, str] | None = None,
) -> Any:
    """Runs `fn` on every replica as Python; if one raises, assigned variables are restored."""
    require_plain(fn)
    mesh = host.mesh
    for leaf in jax.tree.leaves((args, kwargs), is_leaf=lambda v: isinstance(v, PerReplica)):
        if isinstance(leaf, PerReplica) and not are_texts(leaf.stacked):
            require_components(leaf, "A per-replica argument", mesh.replicas)
    undo = frames.Undo()
    captured = captured_state(fn)

    def body(replica: ReplicaThread) -> Any:
        device = mesh.devices[replica.number]
        collectives = EagerCollectives(host, replica, undo)
        own_args, own_kwargs = _own((args, kwargs), replica.number, device, collectives.common)
        frame = frames.EagerFrame(replica.number, device, undo, assigned, collectives.read)
        with (
            _in_python_where_it_reads(fn, frame),
            jax.default_device(device),
            frames.use(frame),
            scopes.replica(ReplicaContext(host, collectives)),
            eager_axis.bound(
                mesh.replicas, replica.number, collectives.operate, collectives.differ
            ),
        ):
            examples = _examples((args, kwargs), replica.number)
            try:
                return in_place.call(fn, own_args, own_kwargs, examples)
            except NameError as error:
                explain_axis(error)
                raise

    replicas = [ReplicaThread(number, body) for number in mesh.local_replicas]
    meeting = ProcessMeeting(mesh)
    try:
        run_in_turn(replicas, meeting.meet)
        if captured is not None:
            captured.require_unchanged()
        undo.store()
        return regroup([replica.result for replica in replicas], mesh)
    except BaseException as error:
        try:
            try:
                meeting.failed(error)
            finally:
                unwind(replicas)  # after an interrupt one may still run, and assign
        finally:
            undo.restore()
        raise


_reading_inside: weakref.WeakSet[Any] = weakref.WeakSet()
"""The code of functions that read variables inside of `jax.jit` or the like."""


@contextlib.contextmanager
def _in_python_where_it_reads(fn: Callable[..., Any], frame: frames.EagerFrame) -> Iterator[None]:
    """Runs what JAX would compile as Python, too, from the second run on, where it reads variables.

    Else JAX would compile all that the function computes again for each value of a variable.
    """
    code = code_of(fn) or type(fn)  # the same where a function is made anew
    with jax.disable_jit() if code in _reading_inside else contextlib.nullcontext():
        try:
            yield
        finally:
            if frame.read_inside:
                _reading_inside.add(code)


@final
class EagerCollectives:
    """The collectives that one replica's Python calls."""

    def __init__(
        self,
        host: CollectiveHost,
        replica: ReplicaThread,
        undo: frames.Undo,
    ) -> None:
        self.common: list[Any] = []
        self._host = host
        self._mesh = host.mesh
        self._replica = replica
        self._undo = undo

    def replica_id(self) -> Any:
        """Returns the replica's number; in `jax.jit` a tracer, as JAX keeps one program for all."""
        return jax.lax.axis_index(AXIS) if being_staged() else np.int32(self._replica.number)

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns each array's sum or mean. The gradient is the all-reduce of the gradients."""
        if being_staged():
            combine: Callable[..., Any] = jax.lax.psum if op is ReduceOp.SUM else jax.lax.pmean
            return list(combine(values, AXIS))
        reduced: list[jax.Array] = _differentiable(
            functools.partial(self._reduce, op),
            lambda _, cotangents: self.all_reduce(op, cotangents),
        )(values)
        return reduced

    def all_gather(self, values: list[jax.Array], axis: int) -> list[jax.Array]:
        """Returns all replicas' arrays joined. The gradient is this replica's slice of the sum."""
        along = [gather_axis(value.shape, axis, "all_gather") for value in values]
        gathered: list[jax.Array] = _differentiable(
            lambda arrays: self._gather(arrays, along),
            lambda arrays, cotangents: self._scatter(arrays, cotangents, along),
        )(values)
        return gathered

    def first(self, value: jax.Array) -> jax.Array:
        """Returns the value of the first replica of this process."""
        chosen: jax.Array = self._on_all("first", value, lambda values: values[0])
        return chosen

    def last(self, value: jax.Array) -> jax.Array:
        """Returns the value of the last replica of this process."""
        chosen: jax.Array = self._on_all("last", value, lambda values: values[-1])
        return chosen

    def sum_on_worker(self, value: jax.Array) -> jax.Array:
        """Returns the sum over the replicas of this process."""
        home = self._mesh.local_devices[0]
        total: jax.Array = self._on_all(
            "sum", value, lambda values: jnp.sum(jnp.stack(jax.device_put(values, home)), axis=0)
        )
        return total

    def is_same(self, value: Any) -> bool:
        """Returns whether all replicas pass one object: a whole argument, or a captured array."""
        alone = len(self._mesh.local_replicas) == 1
        if not alone and any(value is argument for argument in self.common):
            return True
        number = id(value) if isinstance(value, jax.Array) else None

        def compare(numbers: list[Any]) -> Sequence[Any]:
            # A worker's only replica passes the worker's own value, which others do not have.
            same = number is not None and len(set(numbers)) == 1 < len(numbers)
            return [same] * len(numbers)

        same: bool = self._replica.wait_at(Rendezvous("assign with SUM", number, compare))
        return same

    def differ(self, number: complex) -> bool:
        """Returns whether replicas pass different numbers."""
        if self._mesh.shared:
            text = hashlib.blake2b(repr(number).encode(), digest_size=8).digest()
            (rows,) = self.all_gather([jnp.frombuffer(text, jnp.uint8)[None]], 0)
            return bool((rows != rows[0]).any())

        def compare(numbers: list[complex]) -> Sequence[bool]:
            return [len(set(map(repr, numbers))) > 1] * len(numbers)

        differing: bool = self._replica.wait_at(Rendezvous("passing a number", number, compare))
        return differing

    def merge(
        self,
        host: Host,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Calls `fn` once, in the thread that called `run`."""

        def combine(operands: list[Any]) -> Sequence[Any]:
            self._undo.store()
            functions, args, kwargs = zip(*operands, strict=True)
            merged_args, merged_kwargs = regroup(list(zip(args, kwargs, strict=True)), self._mesh)
            storages = {variable: variable.storage for variable in live()}
            held = {v: s.array for v, s in storages.items() if isinstance(s, Storage)}
            try:
                with scopes.cross_replica(host):
                    result = functions[0](host, *merged_args, **merged_kwargs)
            finally:
                for variable, array in held.items():
                    if variable.storage.array is not array:
                        self._undo.keep(variable, array)
            return [
                _to_device(select(result, replica), device)
                for replica, device in zip(
                    self._mesh.local_replicas, self._mesh.local_devices, strict=True
                )
            ]

        return self._replica.wait_at(Rendezvous("merge_call", (fn, args, kwargs), combine))

    def read(self, variable: StoredVariable, number: int) -> jax.Array:
        """Returns a copy of a variable; where other workers have parts of it, all read together."""
        storage = variable.storage
        if not self._mesh.shared or storage.layout.partition.axis is None:
            return storage.copy(number)

        def combine(numbers: list[int]) -> Sequence[jax.Array]:
            copies = storage.copies()
            return [copies[one] for one in numbers]

        copy: jax.Array = self._replica.wait_at(
            Rendezvous(f"a read of {variable.name}", number, combine)
        )
        return copy

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes one object in cross-replica context, with replica 0's `make`."""
        del name
        host = scopes.current_strategy()

        def combine(makers: list[Callable[[], Any]]) -> Sequence[Any]:
            with scopes.cross_replica(host):
                return [makers[0]()] * len(makers)

        return self._replica.wait_at(Rendezvous("making a variable", make, combine))

    def operate(
        self, operation: eager_axis.Operation, operands: list[jax.Array]
    ) -> Sequence[jax.Array]:
        """Returns the results of an operation of JAX over the axis of the replicas."""

        def combine(rows: list[tuple[eager_axis.Operation, list[jax.Array]]]) -> Sequence[Any]:
            started = time.monotonic_ns()
            operations, values = zip(*rows, strict=True)
            known, stacked = eager_axis.joined(operations, values, self._mesh)
            results = eager_axis.run(known, stacked, self._mesh)
            if operation.primitive.name == "psum":
                how = ("all_reduce", ReduceOp.SUM.value, "all_reduce")
                (array,) = stacked
                report(self._host, *how, stacked=array, started=started, call=next(calls))
            return results

        results: Sequence[jax.Array] = self._replica.wait_at(
            Rendezvous(f"{operation} over {AXIS!r}", (operation, operands), combine)
        )
        return results

    def _reduce(self, op: ReduceOp, arrays: list[jax.Array]) -> list[jax.Array]:
        def total(column: Sequence[jax.Array]) -> jax.Array:
            if not self._mesh.shared:
                _require_equal_shapes([array.shape for array in column])
            started = time.monotonic_ns()
            value = stack(column, self._mesh)
            _require_equal_shapes(replica_shapes(value))
            stacked = value.stacked
            ops = self._host.cross_device_ops.chosen(
                self._mesh, stacked.nbytes // self._mesh.replicas
            )
            result = ops.sum_rows(stacked, self._mesh)
            report(
                self._host,
                "all_reduce",
                op.value,
                ops.algorithm,
                stacked=stacked,
                started=started,
                call=next(calls),
            )
            return result / self._mesh.replicas if op is ReduceOp.MEAN else result

        return list(self._combined(f"all_reduce {op.value}", arrays, total))

    def _gather(self, arrays: list[jax.Array], along: list[int]) -> list[jax.Array]:
        axes = iter(along)

        def parts(column: Sequence[jax.Array]) -> list[jax.Array]:
            if self._mesh.shared:
                return on_first_device(stack(column, self._mesh), self._mesh)
            return [jax.device_put(array, self._mesh.local_devices[0]) for array in column]

        return self._combined(
            f"all_gather along {along}",
            arrays,
            lambda column: _concatenated(parts(column), next(axes)),
        )

    def _scatter(
        self, arrays: list[jax.Array], cotangents: list[jax.Array], along: list[int]
    ) -> list[jax.Array]:
        lengths = [array.shape[axis] for array, axis in zip(arrays, along, strict=True)]
        before: list[list[int]] = self._replica.wait_at(
            Rendezvous("all_gather", lengths, lambda rows: [self._of_all(rows)] * len(rows))
        )
        totals = self.all_reduce(ReduceOp.SUM, cotangents)
        starts = [sum(row[i] for row in before[: self._replica.number]) for i in range(len(arrays))]
        return [
            jax.lax.slice_in_dim(total, start, start + length, axis=axis)
            for total, start, length, axis in zip(totals, starts, lengths, along, strict=True)
        ]

    def _of_all(self, rows: list[list[int]]) -> list[list[int]]:
        """Returns the numbers of the replicas of all processes."""
        processes = group.current() if self._mesh.shared else None
        if processes is None:
            return rows
        texts = processes.exchange("lengths", json.dumps(rows))
        return [row for text in texts for row in json.loads(text)]

    def _combined(
        self,
        verb: str,
        arrays: list[jax.Array],
        combine: Callable[[Sequence[jax.Array]], jax.Array],
    ) -> list[jax.Array]:
        """Combines the replicas' lists of arrays, position by position."""

        def combine_lists(rows: list[list[jax.Array]]) -> Any:
            counts = [len(row) for row in rows]
            if len(set(counts)) > 1:
                raise StructureError(
                    f"{verb} needs the same structure on all replicas, but they passed {counts} "
                    "arrays. Pass the same number on each."
                )
            return [combine(column) for column in zip(*rows, strict=True)]

        results: list[jax.Array] = self._on_all(verb, arrays, combine_lists)
        return results

    def _on_all(self, verb: str, value: Any, combine: Callable[[list[Any]], Any]) -> Any:
        """Combines the replicas' values; returns the result on this replica's device."""
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
            raise ContextError(
                f"{verb} was called inside jax.jit or another transformation while functions run "
                "eagerly, where the replicas can't wait for each other. Call it outside of the "
                "transformation, or do not run functions eagerly (run compiles by itself then)."
            )

        def copies(values: list[Any]) -> Sequence[Any]:
            result = combine(values)
            return [jax.device_put(result, device) for device in self._mesh.local_devices]

        return self._replica.wait_at(Rendezvous(verb, value, copies))


def _examples(nest: Any, replica: int) -> int | None:
    """Returns the number of a replica's examples: rows of its part; None without parts."""
    for leaf in jax.tree.leaves(nest, is_leaf=lambda v: isinstance(v, PerReplica)):
        if isinstance(leaf, PerReplica) and replica_shapes(leaf)[replica]:
            return replica_shapes(leaf)[replica][0]
    return None


def _concatenated(column: list[jax.Array], axis: int) -> jax.Array:
    require_joinable([array.shape for array in column], axis)
    return jnp.concatenate(column, axis=axis)


def _differentiable(
    forward: Callable[[list[jax.Array]], list[jax.Array]],
    backward: Callable[[list[jax.Array], list[jax.Array]], list[jax.Array]],
) -> Callable[[list[jax.Array]], list[jax.Array]]:
    """Returns a collective whose gradient is another collective."""
    function = jax.custom_vjp(forward)
    function.defvjp(
        lambda arrays: (forward(arrays), arrays),
        lambda arrays, cotangents: (backward(arrays, cotangents),),
    )
    return function


def _require_equal_shapes(each: Sequence[Shape]) -> None:
    shapes = [list(shape) for shape in each]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueShapeError(
            f"all_reduce needs the same shapes on all replicas, got {shapes}. Reduce over the "
            "batch first."
        )


def _own(nest: Any, replica: int, device: jax.Device, common: list[Any]) -> Any:
    """Returns one replica's arguments."""
    leaves, structure = jax.tree.flatten(nest, is_leaf=lambda v: isinstance(v, DistributedValues))
    own = []
    for leaf in leaves:
        if isinstance(leaf, DistributedValues):
            own.append(_to_device(leaf.component(replica), device))
            continue
        # A replica may write to its NumPy array, and must not change that of the others.
        own.append(leaf.copy() if isinstance(leaf, np.ndarray) else _to_device(leaf, device))
        common.append(own[-1])
    return jax.tree.unflatten(structure, own)


def _to_device(nest: Any, device: jax.Device) -> Any:
    """Moves arrays that are committed to another device."""
    return to_device(nest, device, is_leaf=lambda v: not isinstance(v, dict | list | tuple))
