"""Refuses a step that divides its work over other devices: `run` has divided it already.

JAX has no words for it: XLA fails in its partitioner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from distlab.devices.mesh import AXIS
from distlab.errors import ContextError
from distlab.step.jaxprs import inner_jaxprs, name
from distlab.values.checks import function_name

_PMAP_AXIS: Final = "_internal_pmap_axis_name"
_OF_ANOTHER_SIZE: Final = "use_abstract_mesh cannot change the size of the mesh"


def require_no_other_mesh(fn: Callable[..., Any], jaxpr: Any, axes: tuple[str, ...]) -> None:
    """Checks that a step divides nothing over a mesh of the user's of several devices.

    Args:
      fn: The step's function.
      jaxpr: What it computes.
      axes: The axes of the strategy's mesh.

    Raises:
      ContextError: It does.
    """
    own = {*axes} - {AXIS}
    for others in _divisions(jaxpr):
        if not others <= own:
            raise ContextError(_refusal(fn, others))


def refusal_of(error: Exception, fn: Callable[..., Any]) -> ContextError | None:
    """Returns what to raise for an error that a mesh of another size has caused, None for others.

    Args:
      error: What JAX raised as it traced the step.
      fn: The step's function.
    """
    return ContextError(_refusal(fn, set())) if _OF_ANOTHER_SIZE in str(error) else None


def _divisions(jaxpr: Any) -> Iterator[set[str]]:
    """Yields the axes of several devices over which equations divide, at any depth."""
    for equation in jaxpr.eqns:
        params = equation.params
        if name(equation) == "shard_map" and params["mesh"].size > 1:
            yield {*map(str, params.get("newly_manual_axes", params["mesh"].axis_names))}
        for key in ("sharding", "in_shardings", "out_shardings"):
            given = params.get(key, ())
            for sharding in given if isinstance(given, tuple) else (given,):
                if any(getattr(sharding, "spec", ())) and sharding.mesh.size > 1:
                    yield {*map(str, sharding.mesh.axis_names)}
        for inner in inner_jaxprs(equation):
            yield from _divisions(inner)


def _refusal(fn: Callable[..., Any], axes: set[str]) -> str:
    by = "jax.pmap" if _PMAP_AXIS in axes else "a mesh of its own"
    named = f" (axes {', '.join(sorted(axes))})" if axes and _PMAP_AXIS not in axes else ""
    return (
        f"{function_name(fn)} divides its work by {by}{named}, and run has divided it already: "
        "each replica runs the function on its part. Call the mapped function itself, and combine "
        f'with get_replica_context().all_reduce or jax.lax.psum(x, "{AXIS}").'
    )
