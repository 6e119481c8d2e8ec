"""Tracing a replica function: what one replica computes, as a jaxpr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from distlab.collectives.host import CollectiveHost
from distlab.collectives.traced import TracedCollectives
from distlab.context import scopes
from distlab.context.replica_context import ReplicaContext
from distlab.devices import jax_internals
from distlab.devices.mesh import AXIS
from distlab.errors import ContextError, NeedsPythonError
from distlab.step.arguments import Arguments
from distlab.values.checks import function_name, is_array_like
from distlab.variables import frames
from distlab.variables.variable import Variable, is_variable, live

_NEEDS_PYTHON = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Known(NamedTuple):
    """What a replica knows of the others when it is traced.

    Attributes:
      collectives: how it combines values with them; also collects what it asks
        of them.
      as_arrays: leaves of the result that are Python numbers and differ between
        replicas, so that they have to be arrays.
    """

    collectives: TracedCollectives
    as_arrays: frozenset[int]


class LocalTrace(NamedTuple):
    """What a replica function does on one replica.

    Attributes:
      jaxpr: from variables' values and the dynamic arguments to the computed
        results and the written variables' new values.
      read: for each of the jaxpr's first inputs the variable it is the value
        of; None for inputs it does not use.
      written: the variables it assigns, in the order of the last outputs.
      results: the structure of the result.
      static: for each leaf of the result None when it is computed, or a tuple
        with the object that `fn` returned as it is.
    """

    jaxpr: ClosedJaxpr
    read: tuple[Variable | None, ...]
    written: tuple[Variable, ...]
    results: Any
    static: tuple[tuple[Any] | None, ...]

    @property
    def computed(self) -> int:
        """How many leaves of the result are computed."""
        return self.static.count(None)


def trace(
    fn: Callable[..., Any],
    arguments: Arguments,
    host: CollectiveHost,
    replica: int,
    known: Known,
) -> LocalTrace:
    """Traces `fn` as `replica` sees its arguments. Nothing is executed.

    Args:
      fn: the replica function.
      arguments: what it is given.
      host: the strategy that runs it.
      replica: whose shapes to trace with.
      known: what the replicas know of each other.

    Raises:
      NeedsPythonError: `fn` needs a number while only shapes are known.
      ContextError: `fn` let a traced value escape, such as by assigning a
        variable inside `jax.lax.scan`.
    """
    mesh = host.mesh
    candidates = live()
    found: dict[str, Any] = {}

    def local(values: list[jax.Array], arrays: list[jax.Array]) -> list[Any]:
        frame = frames.TracedFrame(dict(zip(candidates, values, strict=True)))
        args, kwargs = arguments.build(arrays)
        context = ReplicaContext(host, known.collectives)
        with frames.use(frame), scopes.replica(context):
            result = fn(*args, **kwargs)
        leaves, found["results"] = jax.tree.flatten(result, is_leaf=is_variable)
        found["static"] = tuple(
            None if _is_computed(leaf) or position in known.as_arrays else (leaf,)
            for position, leaf in enumerate(leaves)
        )
        found["read"] = tuple(v if v in frame.read else None for v in candidates)
        found["written"] = tuple(frame.written)
        computed = [
            jnp.asarray(leaf)
            for leaf, fixed in zip(leaves, found["static"], strict=True)
            if fixed is None
        ]
        return computed + [frame.written[variable] for variable in found["written"]]

    shapes = [jax.ShapeDtypeStruct(v.shape, v.dtype) for v in candidates]
    arrays = [leaf.local(replica) for leaf in arguments.dynamic()]
    try:
        jaxpr = jax.make_jaxpr(local, axis_env=[(AXIS, mesh.replicas)])(shapes, arrays)
    except _NEEDS_PYTHON as error:
        raise NeedsPythonError(
            f"{function_name(fn)} needs a Python number or NumPy array while run traces it, when "
            "only shapes and dtypes are known. Use jnp.where or jax.lax.cond in place of `if`, and "
            "jnp in place of np; or run it as ordinary Python: "
            f"distlab.run_functions_eagerly(True). JAX says: {error}"
        ) from error
    except jax.errors.UnexpectedTracerError as error:
        raise ContextError(
            f"A value traced inside {function_name(fn)} escaped to where it has no meaning. Most "
            "often a variable was assigned inside jax.lax.scan, cond or jit: return the value "
            f"from it and assign after. JAX says: {error}"
        ) from error
    kept = [const for const in jaxpr.consts if isinstance(const, jax.core.Tracer)]
    if kept and not jax_internals.being_transformed():
        raise ContextError(
            f"{function_name(fn)} uses a value ({kept[0].aval}) that was kept from inside another "
            "function while it was traced, where it had no numbers. Return values from functions "
            "instead of storing them."
        )
    return LocalTrace(jaxpr, **found)


def _is_computed(leaf: Any) -> bool:
    """A Python number or an array made before the step comes back as that one object."""
    if isinstance(leaf, bool | int | float | complex):
        return False
    return isinstance(leaf, jax.core.Tracer) or (
        is_array_like(leaf) and not isinstance(leaf, jax.Array)
    )
