"""The collectives of a replica function that is being traced, on the mesh axis."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import jax.numpy as jnp

from distlab.collectives.cross_device_ops import CrossDeviceOps
from distlab.collectives.shapes import gather_axis, require_joinable
from distlab.context import scopes
from distlab.context.host import Host
from distlab.devices import jax_internals
from distlab.devices.key_data import is_key, through_data
from distlab.devices.mesh import AXIS
from distlab.errors import ContextError, StructureError
from distlab.values.checks import as_array, is_array_like
from distlab.values.distributed import DistributedValues, Shape
from distlab.values.operators import ArrayOperators
from distlab.values.reduce_op import ReduceOp
from distlab.variables import frames
from distlab.variables.variable import Variable, live


@final
class TracedPerReplica(DistributedValues):
    """A per-replica value in a traced `merge_call`, which holds one replica's component."""

    __slots__ = ("collectives", "local")

    def __init__(self, local: jax.Array, collectives: TracedCollectives) -> None:
        self.local = local
        self.collectives = collectives

    @property
    def values(self) -> tuple[Any, ...]:
        """The components of all replicas of this worker, which must have one shape."""
        if self.collectives.shared:
            rows = self.collectives.on_worker(self.local)
        else:
            rows = self.collectives.all_gather([self.local[None]], 0)[0]
        return tuple(rows[replica] for replica in range(rows.shape[0]))

    def component_type(self) -> tuple[Any, int]:
        """Returns the dtype of the component and its rank."""
        return self.local.dtype, self.local.ndim

    def component(self, replica: Any) -> Any:
        """Returns the component of the traced replica."""
        del replica
        return self.local

    def __repr__(self) -> str:
        """Shows the traced component."""
        return f"TracedPerReplica({self.local!r})"


@final
class TracedCollectives:
    """The collectives of one traced replica, whose gradients are the collectives of gradients.

    `plan` has the shapes on all replicas of each array that is gathered, in order, and `gathered`
    what this trace gathered; `differing` the positions of those Python `numbers` that differ.
    `common` has arguments that all replicas receive whole, `merged_into_one` what a
    `merge_call` over several workers returned as one, `made` the variables that the function made.
    """

    def __init__(
        self,
        workers: Sequence[Sequence[int]],
        ops: CrossDeviceOps,
        plan: Sequence[Sequence[Shape]] = (),
        differing: frozenset[int] = frozenset(),
    ) -> None:
        self.gathered: list[Shape] = []
        self.numbers: list[complex] = []
        self.common: list[Any] = []
        self.made: list[Variable] = []
        self.merged_into_one: list[Any] = []
        self.may_make = True
        self.shared = len(workers) > 1
        self._workers = [list(members) for members in workers]
        self._replicas = sum(map(len, workers))
        self._ops = ops
        self._plan = plan
        self._differing = differing

    def end_trace(self) -> None:
        """Forgets the traced values, which JAX would take for leaked ones."""
        self.common, self.merged_into_one = [], []

    def replica_id(self) -> Any:
        """Returns the replica's index along the mesh axis, an int32 tracer."""
        return jax.lax.axis_index(AXIS)

    def all_reduce(self, op: ReduceOp, values: list[jax.Array]) -> list[jax.Array]:
        """Returns each array's sum or mean, by one collective for all arrays."""
        totals = self._ops.same_sums(values, self._replicas)
        return totals if op is ReduceOp.SUM else [total / self._replicas for total in totals]

    def all_gather(self, values: list[jax.Array], axis: int) -> list[jax.Array]:
        """Returns the arrays of all replicas, concatenated along `axis`."""
        return [self._gather(value, axis) for value in values]

    def _gather(self, value: jax.Array, axis: int) -> jax.Array:
        along = gather_axis(value.shape, axis, "all_gather")
        number = len(self.gathered)
        self.gathered.append(value.shape)
        known = number < len(self._plan)
        shapes = self._plan[number] if known else [value.shape] * self._replicas
        require_joinable(shapes, along)
        lengths = [shape[along] for shape in shapes]
        padding = [(0, 0)] * value.ndim
        padding[along] = (0, max(lengths) - value.shape[along])
        rows = _rows(jnp.pad(value, padding))
        parts = [
            jax.lax.slice_in_dim(rows[replica], 0, length, axis=along)
            for replica, length in enumerate(lengths)
        ]
        return jnp.concatenate(parts, axis=along)

    def first(self, value: jax.Array) -> jax.Array:
        """Returns the value of the first replica; of several workers, of each worker's first."""
        return self._of_end(0, value)

    def last(self, value: jax.Array) -> jax.Array:
        """Returns the value of the last replica; of several workers, of each worker's last."""
        return self._of_end(-1, value)

    def sum_on_worker(self, value: jax.Array) -> jax.Array:
        """Returns the sum over the replicas; of several workers, over those of each worker."""
        if all(len(members) == 1 for members in self._workers):
            return value
        summable = value.astype(jnp.int32) if value.dtype == bool else value
        groups = self._workers if len(self._workers) > 1 else None
        return jax.lax.psum(summable, AXIS, axis_index_groups=groups).astype(value.dtype)

    def on_worker(self, value: jax.Array) -> jax.Array:
        """Returns the values of all replicas, `(replicas, ...)`; of several workers, its own."""
        groups = self._workers if len(self._workers) > 1 else None
        return _rows(value, groups)

    def _of_end(self, end: int, value: jax.Array) -> jax.Array:
        if is_key(value):
            return through_data(functools.partial(self._of_end, end), value)
        return self.sum_on_worker(jnp.where(self._is_end(end), value, jnp.zeros_like(value)))

    def _is_end(self, end: int) -> jax.Array:
        ends = [members[end] for members in self._workers]
        replica = self.replica_id()
        return functools.reduce(jnp.logical_or, [replica == number for number in ends])

    def merge(
        self, host: Host, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Calls `fn` in cross-replica context, with traced arguments as per-replica values."""
        args, kwargs = self.merged((args, kwargs))
        with scopes.cross_replica(host, merging=self):
            result = fn(host, *args, **kwargs)
        if self.shared:
            leaves = jax.tree.leaves(result, is_leaf=_keep)
            self.merged_into_one += [leaf for leaf in leaves if isinstance(leaf, jax.core.Tracer)]
        return local_part(result)

    def merged(self, nest: Any) -> Any:
        """Returns a nest with a per-replica value instead of each traced leaf."""

        def whole(leaf: Any) -> Any:
            if isinstance(leaf, int | float | complex) and self.differ(leaf):
                leaf = jnp.asarray(leaf)
            return TracedPerReplica(leaf, self) if isinstance(leaf, jax.core.Tracer) else leaf

        return jax.tree.map(whole, nest, is_leaf=_keep)

    def distributed(self, nests: list[Any]) -> Any:
        """Returns a nest of per-replica values, from the components of every replica."""
        structures: list[Any] = [jax.tree.structure(nest, is_leaf=_keep) for nest in nests]
        if any(structure != structures[0] for structure in structures):
            raise StructureError(
                "All replicas' values must have the same structure, got "
                f"{' and '.join(map(str, dict.fromkeys(structures)))}. Return the same components "
                "for each."
            )
        columns = zip(*(jax.tree.leaves(nest, is_leaf=_keep) for nest in nests), strict=True)
        return jax.tree.unflatten(structures[0], [self._chosen(column) for column in columns])

    def _chosen(self, column: tuple[Any, ...]) -> Any:
        """Returns the per-replica value whose components are these."""
        if all(leaf is column[0] for leaf in column) and not is_array_like(column[0]):
            return column[0]
        arrays = [as_array(leaf, "experimental_distribute_values_from_function") for leaf in column]
        kinds = list(dict.fromkeys(f"{a.dtype}{list(a.shape)}" for a in arrays))
        if len(kinds) > 1:
            raise StructureError(
                "In a merge_call that is being traced, the components of a per-replica value must "
                f"have one shape and dtype, got {' and '.join(kinds)}. Pad or convert them, or "
                "call distlab.run_functions_eagerly(True)."
            )
        return TracedPerReplica(jnp.stack(arrays)[self.replica_id()], self)

    def is_same(self, value: Any) -> bool:
        """Returns whether all replicas pass one object: a whole argument, or a captured array."""
        if self.shared and all(len(members) == 1 for members in self._workers):
            return False  # each worker's only replica passes the worker's own value
        captured = isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)
        return captured or any(value is argument for argument in self.common)

    def differ(self, number: complex) -> bool:
        """Returns whether replicas of other shapes pass another number, as their traces showed."""
        self.numbers.append(number)
        frame = frames.current()
        if frame is not None:
            frame.note_kept()  # where JAX used a trace again, it would pass on no number
        return len(self.numbers) - 1 in self._differing

    def create(self, make: Callable[[], Any], name: str) -> Any:
        """Makes one object for all replicas, in the function's first trace."""
        if not self.may_make:
            raise ContextError(
                f"{name} would be made at every call. Like a tf.function, a compiled function may "
                "make variables, metrics and generators in its first call alone. Move the making "
                "out of the function:\n"
                "    with strategy.scope():\n"
                "        v = distlab.Variable(...)  # before the step\n"
                "    strategy.run(step)             # step uses v\n"
                "or keep what the first call made (`if self.v is None: self.v = "
                "distlab.Variable(...)`), or call distlab.run_functions_eagerly(True)."
            )
        host, frame, before = scopes.current_strategy(), frames.current(), set(live())
        with jax_internals.outside_of_traces(), frames.use(None), scopes.cross_replica(host):
            made = make()
        self.made += [variable for variable in live() if variable not in before]
        if frame is not None:
            frame.note_made(self.made)
        return made


def _rows(value: jax.Array, groups: list[list[int]] | None = None) -> jax.Array:
    """Returns all rows; of complex numbers by parts, at whose gradient XLA may abort else."""
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return jax.lax.complex(_rows(value.real, groups), _rows(value.imag, groups))
    rows: jax.Array = jax.lax.all_gather(value, AXIS, axis_index_groups=groups)
    return rows


def local_part(nest: Any) -> Any:
    """Returns a nest with the traced replica's component instead of each per-replica value."""
    return jax.tree.map(
        lambda leaf: leaf.local if isinstance(leaf, TracedPerReplica) else leaf,
        nest,
        is_leaf=_keep,
    )


def _keep(value: Any) -> bool:
    return isinstance(value, DistributedValues | ArrayOperators)
