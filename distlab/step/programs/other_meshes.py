"""Refuses a step that divides its work over other devices: `run` has divided it already.

JAX has no words for it: XLA fails in its partitioner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from distlab.devices.mesh import AXIS
from distlab.devices.requirements import mapped_axes
from distlab.errors import ContextError
from distlab.step.jaxprs.operations import PMAP_AXIS, divided_over
from distlab.text.shown import shown_text
from distlab.values.checks import function_name

_OF_ANOTHER_SIZE: Final = "use_abstract_mesh cannot change the size of the mesh"


def require_no_other_mesh(fn: Callable[..., Any], jaxpr: Any) -> None:
    """Checks that a step divides nothing over a mesh of the user's of several devices."""
    axes = divided_over(jaxpr)
    if axes:
        raise ContextError(_refusal(fn, axes))


def require_not_mapped() -> None:
    """Checks that `run` is not called in a function that `jax.pmap` or `jax.shard_map` maps."""
    axes = mapped_axes()
    if axes:
        by = "jax.pmap" if PMAP_AXIS in axes else f"jax.shard_map (axes {', '.join(axes)})"
        raise ContextError(
            f"run was called inside {by}, which has divided the work over devices already. Call "
            "run outside of it: each replica runs its function on a part of the arguments."
        )


def refusal_of(error: Exception, fn: Callable[..., Any]) -> ContextError | None:
    """Returns a typed error where a mesh of another size caused one; None otherwise."""
    return ContextError(_refusal(fn, set())) if _OF_ANOTHER_SIZE in shown_text(error) else None


def _refusal(fn: Callable[..., Any], axes: set[str]) -> str:
    if PMAP_AXIS in axes:
        by = "jax.pmap"
    else:
        by = "a mesh of its own" + (f" (axes {', '.join(sorted(axes))})" if axes else "")
    return (
        f"{function_name(fn)} divides its work by {by}, and run has divided it already: "
        "each replica runs the function on its part. Call the mapped function itself, and combine "
        f'with get_replica_context().all_reduce or jax.lax.psum(x, "{AXIS}").'
    )
