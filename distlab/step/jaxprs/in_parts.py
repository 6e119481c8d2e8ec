"""Operations in parts: the operands from which an operation computes a part of its result.

A part is one of equal slices of an array along an axis; each replica computes its own. Only what
is listed here is computed in parts: of any other operation, a part is cut from the whole result.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, TypeAlias

import jax
import jax.numpy as jnp

from distlab.devices.mesh import AXIS
from distlab.step.jaxprs.operations import name

Form: TypeAlias = int
"""The axis along which a replica has a part of a value, or `WHOLE`."""

WHOLE: Final[Form] = -1

_BY_ELEMENT: Final = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil
    clamp clz complex conj convert_element_type copy copy_p cos cosh digamma div eq erf erf_inv
    erfc exp exp2 expm1 floor ge gt igamma igammac imag integer_pow is_finite le lgamma log
    log1p logistic lt max min mul ne neg nextafter not or polygamma population_count pow real
    reduce_precision rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square sub tan tanh xor zeta
    """.split()  # noqa: SIM905 - shorter
)
"""Operations whose result at an index depends on their operands at that index alone."""


def _all_true(value: jax.Array, axis: str) -> jax.Array:
    return jax.lax.pmin(value.astype(jnp.int32), axis) > 0


def _any_true(value: jax.Array, axis: str) -> jax.Array:
    return jax.lax.pmax(value.astype(jnp.int32), axis) > 0


_COMBINED: Final[dict[str, Callable[[Any, str], Any]]] = {
    "reduce_sum": jax.lax.psum,
    "dot_general": jax.lax.psum,
    "reduce_max": jax.lax.pmax,
    "reduce_min": jax.lax.pmin,
    "reduce_and": _all_true,
    "reduce_or": _any_true,
}
"""Reductions, each with the collective that makes the whole result of those of all parts."""


def is_sum_of_all(equation: Any) -> bool:
    """Returns whether an operation sums each operand over all replicas, and nothing else."""
    params = equation.params
    over_all = params.get("axes") == (AXIS,) and params.get("axis_index_groups") is None
    return name(equation).startswith("psum") and over_all


def operand_forms(equation: Any, axis: int, parts: int) -> list[Form] | None:
    """Returns the forms of the operands for a part of the result; None if that needs the whole."""
    shape, shapes = equation.outvars[0].aval.shape, [atom.aval.shape for atom in equation.invars]
    if len(equation.outvars) > 1 or axis >= len(shape) or shape[axis] % parts:
        return None
    kind, params = name(equation), equation.params
    if kind in _BY_ELEMENT and all(one in {shape, ()} for one in shapes):
        return [axis if one == shape else WHOLE for one in shapes]
    if kind == "broadcast_in_dim" and len(shapes) == 1:
        dimensions = list(params["broadcast_dimensions"])
        own = dimensions.index(axis) if axis in dimensions else WHOLE
        return [own if own != WHOLE and shapes[0][own] == shape[axis] else WHOLE]
    if kind == "reshape" and len(shapes) == 1 and axis == 0 and prod(shape):
        # The first rows of both are the same elements.
        return [0] if shapes[0] and shapes[0][0] % parts == 0 else None
    if kind.startswith("reduce_") and kind in _COMBINED:
        return [[n for n in range(len(shapes[0])) if n not in params["axes"]][axis]]
    return None


def part_of_result(equation: Any, axis: int, parts: int, operands: list[Any]) -> Any:
    """Returns a part of the result, of operands in the forms that `operand_forms` returns."""
    params = dict(equation.primitive.get_bind_params(equation.params))
    for key in {"shape", "new_sizes"} & params.keys():
        params[key] = tuple(n // parts if d == axis else n for d, n in enumerate(params[key]))
    for key in {"sharding", "out_sharding"} & params.keys():
        params[key] = None  # that of the whole
    return equation.primitive.bind(*operands, **params)


def reduced_forms(equation: Any, operand: int, axis: int) -> list[Form] | None:
    """Returns the forms of the operands where a reduction leaves out an axis of one of them.

    `combined` then makes its result of those of all replicas; None for other operations.
    """
    kind, params = name(equation), equation.params
    if kind == "dot_general" and not equation.outvars[0].aval.shape:
        contracted = params["dimension_numbers"][0]
        number = list(contracted[operand]).index(axis)
        return [dimensions[number] for dimensions in contracted]
    return [axis] if kind in _COMBINED and axis in params.get("axes", ()) else None


def combined(equation: Any, result: Any) -> Any:
    """Returns the whole result of a reduction from this replica's, of its part of the operands."""
    return _COMBINED[name(equation)](result, AXIS)
