"""Checks that JAX's transformations, meshes and settings allow a verb here."""

from __future__ import annotations

from typing import Any, cast

import jax
from jax.sharding import AxisType

from distlab.devices import jax_internals
from distlab.errors import ContextError


def mapped_axes() -> tuple[str, ...]:
    """Returns the axes over which `jax.pmap` or `jax.shard_map` maps the caller; none elsewhere."""
    mesh = jax.sharding.get_abstract_mesh()
    axes = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(str(name) for name, kind in axes if kind is AxisType.Manual)


def require_compilation(verb: str) -> None:
    """Checks that JAX may compile."""
    if cast(Any, jax.config).jax_disable_jit:
        raise ContextError(
            f"{verb} compiles a program, which jax.disable_jit forbids; JAX_DISABLE_JIT in the "
            "environment does the same. Call distlab.run_functions_eagerly(True) in its place: "
            "replicas then run ordinary Python."
        )


def require_not_staged(verb: str) -> None:
    """Checks that a verb computes at once, and not in a program that is being traced."""
    if jax_internals.being_staged():
        raise ContextError(
            f"{verb} takes values from the devices at once, and was called inside jax.jit or "
            "another function that is being traced, where they have none yet. Call it before, and "
            "pass what it returns as an argument."
        )
