"""What is added to the errors that replica functions raise, compiled or as ordinary Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import jax

from distlab.devices.mesh import AXIS
from distlab.errors import ValueShapeError
from distlab.step.parameters import argument_label, parameter_names
from distlab.values.checks import function_name
from distlab.values.distributed import PerReplica, Shape, replica_shapes

Argument: TypeAlias = tuple[str, Any, Sequence[Shape]]
"""An argument's name, its dtype, and its shape on each replica."""


def explain_axis(error: Exception) -> None:
    """Adds the name of the replicas' axis to JAX's error for an axis that is not bound.

    Args:
      error: What the function raised.
    """
    if isinstance(error, NameError) and "axis name" in str(error):
        error.add_note(
            f"In a function that strategy.run runs, the axis of the replicas is {AXIS!r}. "
            f"Write jax.lax.pmean(x, {AXIS!r}), or "
            'distlab.get_replica_context().all_reduce("MEAN", x).'
        )


def explain_static(error: Exception) -> None:
    """Adds to JAX's error for static arguments that are traced how `run` takes them as they are.

    Args:
      error: What the function raised.
    """
    if isinstance(error, ValueError) and "Non-hashable static arguments" in str(error):
        error.add_note(
            "strategy.run passes numbers as arrays. Say there, too, which arguments are static: "
            "strategy.run(..., options=distlab.RunOptions(static_argnums=...))."
        )


def explain_masked(error: Exception, fn: Callable[..., Any]) -> None:
    """Raises in place of JAX's error for masked arrays of NumPy one that names the function.

    Args:
      error: What the function raised.
      fn: The function.

    Raises:
      ValueShapeError: It computes with such an array.
    """
    if isinstance(error, ValueError) and "numpy masked arrays are not supported" in str(error):
        raise ValueShapeError(
            f"{function_name(fn)} computes with a masked array of NumPy, whose mask would be lost. "
            "Use array.filled(number), and numpy.ma.getmaskarray(array) as an array of its own."
        ) from error


def explain_shapes(
    error: Exception, replica: int, arguments: Iterable[Argument], *, empty: bool
) -> None:
    """Adds to an error which replica's shapes led to it, where shapes differ.

    Args:
      error: What the function raised.
      replica: The replica's number.
      arguments: The replicas' arguments.
      empty: Whether the replica has no examples.
    """
    received = [
        f"{label}: {dtype}{list(shapes[replica])}"
        for label, dtype, shapes in arguments
        if len(set(shapes)) > 1
    ]
    if not received:
        return
    remedy = (
        " A replica without examples runs the step, too: the function must work for empty "
        "arrays (in reshape, sizes in place of -1)."
    )
    error.add_note(f"Replica {replica} receives {', '.join(received)}.{remedy if empty else ''}")


def explain_eager(
    error: Exception,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    replica: int,
) -> None:
    """Adds to an error of a function that runs as ordinary Python what a program's has.

    Args:
      error: What the function raised.
      fn: The function.
      args: The arguments of all replicas.
      kwargs: Their named arguments.
      replica: The number of the replica that raised it.

    Raises:
      ValueShapeError: The function computes with a masked array.
    """
    explain_axis(error)
    explain_masked(error, fn)
    if isinstance(error, TypeError) and "forward-mode autodiff (jvp)" in str(error):
        error.add_note(
            "all_reduce and all_gather have no forward-mode derivative in functions that run "
            "eagerly. Compile the function (run does by itself), or use jax.lax.psum(x, "
            f"{AXIS!r})."
        )
    leaves, _ = jax.tree_util.tree_flatten_with_path(
        (args, kwargs), is_leaf=lambda v: isinstance(v, PerReplica)
    )
    names = parameter_names(fn, len(args))
    arguments = [
        (argument_label(path, names), leaf.component_type()[0], replica_shapes(leaf))
        for path, leaf in leaves
        if isinstance(leaf, PerReplica)
    ]
    empty = any(shapes[replica][:1] == (0,) for _, _, shapes in arguments)
    explain_shapes(error, replica, arguments, empty=empty)
