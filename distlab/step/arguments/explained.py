"""What is added to the errors that replica functions raise, compiled or as ordinary Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any, Final, TypeAlias

import jax

from distlab.devices.mesh import AXIS
from distlab.errors import ValueShapeError
from distlab.step.arguments.names import argument_label, parameter_names
from distlab.text.shown import shown_text
from distlab.values.checks import function_name
from distlab.values.distributed import PerReplica, Shape, replica_shapes

Argument: TypeAlias = tuple[str, Any, Sequence[Shape]]
"""An argument's name, its dtype, and its shape on each replica."""

_OF_TRACES: Final = ("Tracer", "must be concrete")
_EAGERLY: Final = "Or run the function as ordinary Python: distlab.run_functions_eagerly(True)."
_AS_IT_IS: Final = "strategy.run(..., options=distlab.RunOptions(static_argnums=...))"
_OF_MASKED: Final = "numpy masked arrays are not supported"
_OF_METHODS: Final = ("'method'", "a method: <bound method", "Argument '<bound method")
"""Texts of errors about a method that is computed with."""

_TRACED: Final = (
    (
        ("boolean indices must be concrete",),
        "run compiles the function for shapes that are known before, and how many elements a mask "
        "selects is not. Use jnp.where(mask, x, 0) in place of x[mask], with .sum() and the like, "
        "and jnp.where(mask, 0, x) in place of x.at[mask].set(0). " + _EAGERLY,
    ),
    (
        (
            *("Shapes must be 1D", "was not hashable", "sequence of integers or a single"),
            *("Slice entries must be static", "must have static start/stop/step"),
        ),
        "run compiles the function for shapes that are known before, and passes numbers as arrays. "
        f"Pass a number that is part of a shape as it is: {_AS_IT_IS}, which compiles for each "
        "value. For a slice of a known size that begins anywhere, use jax.lax.dynamic_slice. "
        + _EAGERLY,
    ),
    (
        ("__format__", "format: ", "format requires", "JSON serializable"),
        "run compiles the function, and what is computed has no value while it is traced. Return "
        "it and write it after run, or use jax.debug.print('loss {x:.3f}', x=loss). " + _EAGERLY,
    ),
    (
        ("unhashable type",),
        "run compiles the function, and passes numbers as arrays, which are no keys. Pass a number "
        f"that chooses what is done as it is: {_AS_IT_IS}, or index an array: "
        "jnp.asarray(values)[n]. " + _EAGERLY,
    ),
    (
        ("Tracer(~",),
        "run compiles the function, and passes numbers as arrays. Pass a number that chooses what "
        f"is done as it is: {_AS_IT_IS}, which compiles for each value. " + _EAGERLY,
    ),
)
"""Texts of errors about values that are traced, and what helps."""


def explain_axis(error: Exception) -> None:
    """Adds the name of the replicas' axis to JAX's error for an axis that is not bound."""
    if isinstance(error, NameError) and "axis name" in shown_text(error):
        error.add_note(
            f"In a function that strategy.run runs, the axis of the replicas is {AXIS!r}. "
            f"Write jax.lax.pmean(x, {AXIS!r}), or "
            'distlab.get_replica_context().all_reduce("MEAN", x).'
        )


def explain_static(error: Exception) -> None:
    """Adds to JAX's error for static arguments that are traced how `run` takes them as they are."""
    if isinstance(error, ValueError) and "Non-hashable static arguments" in shown_text(error):
        error.add_note(
            "strategy.run passes numbers as arrays. Say there, too, which arguments are static: "
            f"{_AS_IT_IS}."
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


def explain_methods(error: Exception) -> None:
    """Adds to an error about a method in place of a value that a variable's value is one."""
    if not isinstance(error, TypeError | AttributeError | ValueShapeError):
        return
    of_a_method = any(part in shown_text(error) for part in _OF_METHODS)
    if of_a_method or isinstance(getattr(error, "obj", None), FunctionType):
        error.add_note(
            "A method was not called. The value of a variable is one, as in TensorFlow: write "
            "variable.value()."
        )


def explain_inner_traces(error: Exception) -> None:
    """Adds to Flax's error for an NNX object that is changed in an inner trace what carries it."""
    if type(error).__name__ == "TraceContextError" and type(error).__module__.startswith("flax."):
        error.add_note(
            "A flax.nnx object is changed in a function that JAX traces by itself, as the body of "
            "dl.scan or jax.lax.scan. Write nnx.scan, nnx.grad or nnx.jit, which take the object "
            "as an argument; or carry its state: graph, state = nnx.split(model) before, "
            "nnx.merge(graph, state) in the body, nnx.update(model, state) after."
        )


def _accepts(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Returns whether a function has parameters for arguments, where it tells them."""
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


def explain_masked(error: Exception, fn: Callable[..., Any]) -> None:
    """Raises in place of JAX's error for masked arrays of NumPy one that names the function."""
    if isinstance(error, ValueError) and _OF_MASKED in shown_text(error):
        raise ValueShapeError(
            f"{function_name(fn)} computes with a masked array of NumPy, whose mask would be lost. "
            "Use array.filled(number), and numpy.ma.getmaskarray(array) as an array of its own."
        ) from error


def explain_traced(error: Exception) -> None:
    """Adds a remedy to an error of Python's or JAX's about a traced value."""
    text = shown_text(error)
    is_of_a_trace = "Tracer" in text or isinstance(
        error, jax.errors.JAXTypeError | jax.errors.JAXIndexError
    )
    for parts, note in _TRACED:
        if is_of_a_trace and any(part in text for part in parts):
            error.add_note(note)
            return


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
    explain_methods(error)
    explain_masked(error, fn)
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
