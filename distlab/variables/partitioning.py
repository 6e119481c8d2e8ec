"""Variables made in parts, along their first axis."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from distlab.devices import jax_internals
from distlab.errors import ArgumentTypeError, ArgumentValueError
from distlab.text.shown import shown
from distlab.variables.conversion import as_value
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

Partition: TypeAlias = Callable[[tuple[int, ...], Any], Sequence[int]]
"""Returns the rows of each part of a variable of some shape and dtype; of one part, it is whole."""

_numbers = itertools.count()


def require_partitioner(partitioner: Any) -> None:
    """Checks that a partitioner can be called."""
    if not callable(partitioner) or isinstance(partitioner, type):
        raise ArgumentTypeError(
            "variable_partitioner must be a function of a shape and a dtype, got "
            f"{shown(partitioner)}. Pass for example "
            "distlab.experimental.partitioners.FixedShardsPartitioner(2)."
        )


def by(partitioner: Callable[..., Any]) -> Partition:
    """Returns the rows of each part by a partitioner, as TensorFlow deals them out."""

    def rows_of_parts(shape: tuple[int, ...], dtype: Any) -> list[int]:
        if not shape or not shape[0]:
            return [1]  # nothing to divide
        counts = _checked_counts(partitioner(shape=shape, dtype=np.dtype(dtype)), shape)
        return sizes(shape[0], min(counts[0], shape[0]))

    return rows_of_parts


def sizes(rows: int, parts: int) -> list[int]:
    """Returns the rows of each part; where they differ by one, larger ones come first."""
    base, more = divmod(rows, parts)
    return [base + (number < more) for number in range(parts)]


def made(
    make: Callable[[int, dict[str, Any]], Variable], arguments: dict[str, Any], partition: Partition
) -> Variable | ShardedVariable:
    """Returns a new variable, whole or in parts."""
    value = arguments["initial_value"]
    if jax_internals.being_staged():
        return make(0, arguments)  # which says why not
    if callable(value):
        value = value()
    if not isinstance(value, jax.core.Tracer):
        value = as_value(value, arguments["dtype"], arguments["name"] or "A variable")
        rows = partition(value.shape, value.dtype)
        if len(rows) > 1:
            return _in_parts(make, arguments, value, rows)
    return make(0, {**arguments, "initial_value": value})


def _in_parts(
    make: Callable[[int, dict[str, Any]], Variable],
    arguments: dict[str, Any],
    value: jax.Array,
    rows: Sequence[int],
) -> ShardedVariable:
    name = arguments["name"] or f"sharded_variable_{next(_numbers)}"
    ends = np.cumsum(rows).tolist()
    parts = [
        make(
            number,
            {
                **arguments,
                "initial_value": value[end - count : end],
                "name": f"{name}/part_{number}",
            },
        )
        for number, (count, end) in enumerate(zip(rows, ends, strict=True))
    ]
    return ShardedVariable(parts, name)


def _checked_counts(counts: Any, shape: tuple[int, ...]) -> list[int]:
    """Returns a partitioner's result as whole numbers."""
    numbers = np.asarray(counts)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise ArgumentTypeError(
            "variable_partitioner must return a list with the number of parts along each axis, got "
            f"{shown(counts)} for the shape {list(shape)}. Return for example "
            f"{[2] + [1] * (len(shape) - 1)}."
        )
    if numbers[0] < 1 or (numbers[1:] != 1).any():
        raise ArgumentValueError(
            "variable_partitioner must divide the first axis alone, into at least one part, got "
            f"{shown(counts)} for the shape {list(shape)}. Return for example "
            f"{[2] + [1] * (len(shape) - 1)}."
        )
    return [int(number) for number in numbers]
