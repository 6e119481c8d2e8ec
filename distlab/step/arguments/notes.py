"""Notes that are added to the errors of replica functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import jax

from distlab.devices.mesh import AXIS
from distlab.step.arguments.names import argument_label, parameter_names
from distlab.text.shown import shown_text
from distlab.values.checks import function_name
from distlab.values.distributed import PerReplica, Shape, replica_shapes

Argument: TypeAlias = tuple[str, Any, Sequence[Shape]]
"""An argument's name, its dtype, and its shape on each replica."""

_AS_IT_IS: Final = "strategy.run(..., options=distlab.RunOptions(static_argnums=...))"


def explain_axis(error: Exception) -> None:
    """Adds the name of the replicas' axis to JAX's error for an axis that is not bound."""
    if isinstance(error, NameError) and "axis name" in shown_text(error):
        error.add_note(
            f"In a function that strategy.run runs, the axis of the replicas is {AXIS!r}. "
            f"Write jax.lax.pmean(x, {AXIS!r}), or "
            'distlab.get_replica_context().all_reduce("MEAN", x).'
        )


def explain_parts_of_batch(
    error: Exception, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Adds to an error for arguments that are missing that the only one was a batch of them."""
    if not isinstance(error, TypeError) or "required" not in shown_text(error):
        return
    if len(args) != 1 or not isinstance(args[0], tuple):
        return
    if _accepts(fn, args[0], kwargs) and not _accepts(fn, args, kwargs):
        error.add_note(
            f"args=(batch,) passes a batch of {len(args[0])} parts as one argument. Write "
            f"args=batch to pass each part as an argument of {function_name(fn)}."
        )


def _accepts(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a function has parameters for arguments."""
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except Exception:  # noqa: BLE001 - some built-in functions, and any `__getattr__` of the user's
        return False
    return True


def other_ways(numbers: Sequence[str]) -> str:
    """Returns how a function runs that needs Python's numbers."""
    eagerly = "or run it as ordinary Python: distlab.run_functions_eagerly(True)."
    if not numbers:
        return eagerly
    return (
        f"{eagerly} run passes numbers as arrays, here {', '.join(numbers[:4])}. Pass one that is "
        f"part of a shape, or chooses what is done, as it is: {_AS_IT_IS}, which compiles for each "
        "value."
    )


def explain_shapes(
    error: Exception, replica: int, arguments: Iterable[Argument], *, empty: bool
) -> None:
    """Adds to an error which replica's shapes led to it, where shapes differ."""
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
    """Adds to an error of a function that runs as ordinary Python what a program's has."""
    explain_axis(error)
    explain_parts_of_batch(error, fn, args, kwargs)
    if isinstance(error, TypeError) and "forward-mode autodiff (jvp)" in shown_text(error):
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
