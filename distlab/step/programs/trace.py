"""Tracing a replica function to the jaxpr of one replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.sharding import NamedSharding

from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import TracedCollectives
from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext
from distlab.devices import jax_internals
from distlab.devices.mesh import AXIS, ReplicaMesh
from distlab.errors import ContextError
from distlab.step.arguments import in_place
from distlab.step.arguments.leaves import Arguments
from distlab.step.arguments.names import Declared, declared
from distlab.step.jaxprs.without_mesh import without_mesh
from distlab.text.shown import shown_text
from distlab.values.checks import declared_array, function_name, is_array_like
from distlab.values.distributed import Mirrored
from distlab.values.needs_python import NEEDS_PYTHON, needs_python
from distlab.values.wide_integers import require_kept
from distlab.variables import frames
from distlab.variables.variable import Variable, live


class LocalTrace(NamedTuple):
    """The trace of a replica function on one replica."""

    jaxpr: ClosedJaxpr
    read: tuple[Variable | None, ...]  # of each of the first inputs; None for unused ones
    written: tuple[Variable, ...]  # in the order of the outputs after the results
    results: Any  # the result's structure
    static: tuple[tuple[Any] | None, ...]  # None for a computed leaf, else what `fn` returned
    declared: tuple[Declared | None, ...]  # names of those returned as `Mirrored`
    one: tuple[bool, ...] = ()  # whether a `merge_call` of workers made it
    updates: tuple[tuple[Variable, str, int], ...] = ()  # a variable, the verb, its operands
    on_mesh: bool = False  # traced as a part of a program of the mesh

    @property
    def computed(self) -> int:
        """The number of computed leaves of the result."""
        return self.static.count(None)


def trace(
    fn: Callable[..., Any],
    arguments: Arguments,
    host: CollectiveHost,
    replica: int,
    *,
    collectives: TracedCollectives,
    as_arrays: frozenset[int],
    on_mesh: bool,
) -> LocalTrace:
    """Traces `fn` with one replica's shapes. Nothing is executed."""
    mesh = host.mesh
    candidates = live()
    found: dict[str, Any] = {}

    def local(values: list[jax.Array], arrays: list[jax.Array]) -> list[Any]:
        frame = frames.TracedFrame(dict(zip(candidates, values, strict=True)))
        args, kwargs = arguments.build(arrays)
        leaves_of = zip(arrays, arguments.dynamic(), strict=True)
        collectives.common = [array for array, leaf in leaves_of if leaf.role == "whole"]
        context = ReplicaContext(host, collectives)
        with frames.use(frame), scopes.replica(context):
            result = in_place.call(fn, args, kwargs, arguments.examples(replica))
        paths, found["results"] = jax.tree_util.tree_flatten_with_path(result, is_leaf=_is_mirrored)
        leaves = [leaf for _, leaf in paths]
        found["static"] = tuple(
            None if _is_computed(leaf) or position in as_arrays else (leaf,)
            for position, leaf in enumerate(leaves)
        )
        computed = [
            (declared(path), leaf)
            for (path, leaf), fixed in zip(paths, found["static"], strict=True)
            if fixed is None
        ]
        found["one"] = tuple(
            any(leaf is merged for merged in collectives.merged_into_one) for _, leaf in computed
        )
        found["declared"] = tuple(name if _is_mirrored(leaf) else None for name, leaf in computed)
        found["read"] = tuple(v if v in frame.read else None for v in candidates)
        found["written"] = tuple(frame.written)
        found["updates"] = tuple((v, o.verb, len(o.operands)) for v, o in frame.updates)
        collectives.end_trace()
        return [
            *(_array(leaf, name.label) for name, leaf in computed),
            *(frame.written[variable] for variable in found["written"]),
            *(operand for _, operation in frame.updates for operand in operation.operands),
        ]

    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in candidates]
    arrays = [leaf.local(replica) for leaf in arguments.dynamic()]
    try:
        with _seen(mesh, on_mesh or mesh.model > 1), jax_internals.sums_of_numbers(AXIS, _differs):
            jaxpr = jax.make_jaxpr(local, axis_env=[(AXIS, mesh.replicas)])(shapes, arrays)
    except NEEDS_PYTHON as error:
        raise needs_python(fn, "run", error, _other_ways(arguments.numbers())) from error
    except jax.errors.UnexpectedTracerError as error:
        raise ContextError(
            f"A value traced inside {function_name(fn)} escaped from its trace. Most often a "
            "variable was assigned inside jax.lax.scan, cond or jit: use dl.scan instead of "
            f"jax.lax.scan, or return the value and assign it after. JAX reports: {error}"
        ) from error
    except NameError as error:
        explain_axis(error)
        raise
    leaked = [const for const in jaxpr.consts if isinstance(const, jax.core.Tracer)]
    if leaked and not jax_internals.being_transformed():
        raise ContextError(
            f"{function_name(fn)} uses a value ({leaked[0].aval}) that was kept from inside a "
            "function that JAX was tracing, where it had no numbers. Return values from functions "
            "instead of storing them."
        )
    # Replicas of different shapes have programs of their own, over meshes of their own.
    several = mesh.model > 1 and not on_mesh
    return LocalTrace(
        ClosedJaxpr(
            without_mesh(jaxpr.jaxpr) if several else jaxpr.jaxpr,
            [_unshared(const) for const in jaxpr.consts],
        ),
        **found,
        on_mesh=on_mesh,
    )


def explain_axis(error: NameError) -> None:
    """Adds the name of the replicas' axis to JAX's error for an axis that is not bound."""
    if "axis name" in shown_text(error):
        text = (
            f"{error} In a function that strategy.run runs, the axis of the replicas is {AXIS!r}: "
            f"write jax.lax.pmean(x, {AXIS!r}), or "
            'distlab.get_replica_context().all_reduce("MEAN", x).'
        )
        error.args = (text,)


def _other_ways(numbers: Sequence[str]) -> str:
    """Returns how a function runs that needs Python's numbers."""
    eagerly = "or run it as ordinary Python: distlab.run_functions_eagerly(True)."
    if not numbers:
        return eagerly
    return (
        f"{eagerly} run passes numbers as arrays, here {', '.join(numbers[:4])}. Pass one that is "
        "part of a shape, or chooses what is done, as it is: strategy.run(..., "
        "options=distlab.RunOptions(static_argnums=...)), which compiles for each value."
    )


def _unshared(const: Any) -> Any:
    """Returns a constant of NumPy as another object with the same memory.

    JAX keeps what it made of an array of 64-bit numbers by the object. A later program would have
    its numbers, whatever was written into the array since.
    """
    return np.asarray(const).view(type(const)) if isinstance(const, np.ndarray) else const


def _differs(value: Any) -> bool:
    """Returns whether a value that is not traced may differ between replicas."""
    if not isinstance(value, int | float | complex | np.number):
        return False
    collectives = getattr(scopes.current_replica(), "collectives", None)
    return isinstance(collectives, TracedCollectives) and collectives.differ(complex(value))


def _seen(mesh: ReplicaMesh, on_mesh: bool) -> AbstractContextManager[None]:
    return mesh.seen_by_a_replica() if on_mesh else nullcontext()


def traced_constants(traces: list[LocalTrace]) -> list[Any]:
    """Returns the constants of traces that JAX is tracing itself, each once."""
    constants = (one for local in traces for one in local.jaxpr.consts)
    return list({id(one): one for one in constants if isinstance(one, jax.core.Tracer)}.values())


def with_inputs(local: LocalTrace, constants: list[Any], mesh: ReplicaMesh) -> LocalTrace:
    """Returns a trace with some constants as its last inputs."""
    closed = local.jaxpr
    count = len(closed.jaxpr.invars)

    def evaluated(*inputs: Any) -> list[Any]:
        given = dict(zip(map(id, constants), inputs[count:], strict=True))
        consts = [given.get(id(one), one) for one in closed.consts]
        return list(jax.core.eval_jaxpr(closed.jaxpr, consts, *inputs[:count]))

    avals = [*closed.in_avals, *(one.aval for one in constants)]
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    with _seen(mesh, local.on_mesh):
        jaxpr = jax.make_jaxpr(evaluated, axis_env=[(AXIS, mesh.replicas)])(*shapes)
    return local._replace(jaxpr=jaxpr)


def _is_mirrored(value: Any) -> bool:
    return type(value) is Mirrored


def _array(leaf: Any, label: str) -> jax.Array:
    """Returns a computed leaf as an array, which must keep the numbers of one of NumPy."""
    require_kept(leaf.array if type(leaf) is Mirrored else leaf, label)
    return declared_array(leaf, label) if type(leaf) is Mirrored else jnp.asarray(leaf)


def _is_computed(leaf: Any) -> bool:
    """Returns whether a leaf is computed; a number or an array from before the step is not."""
    if type(leaf) is Mirrored:  # one from before the step lies on all devices
        return not isinstance(getattr(leaf.array, "sharding", None), NamedSharding)
    if isinstance(leaf, bool | int | float | complex):
        return False
    return isinstance(leaf, jax.core.Tracer) or (
        is_array_like(leaf) and not isinstance(leaf, jax.Array)
    )
