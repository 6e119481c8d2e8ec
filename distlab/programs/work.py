"""The work of a whole program, with which that of its devices is compared."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any


def whole_flops(lowered: Any, jaxpr: Any = None) -> float | None:
    """Returns the floating-point operations of a program as if one device ran it.

    In a `shard_map` XLA counts those of one device: its share of the work, as far as the `jaxpr`
    shows it, is multiplied by the devices. Without one such programs are unknown.
    """
    try:
        flops = lowered.cost_analysis()["flops"]
        if jaxpr is None:
            return None if "manual_computation" in lowered.as_text() else float(flops)
    except Exception:  # noqa: BLE001 - backends without it raise errors of many types
        return None
    written, whole = _weights(jaxpr)
    return float(flops) * whole / written if written else None


def _weights(jaxpr: Any) -> tuple[float, float]:
    """Returns the weight of a trace's operations as XLA counts them, and as all devices run them.

    A product weighs its operations, anything else the elements of its results; loops count once.
    """
    written = whole = 0.0
    for equation in jaxpr.eqns:
        inner = list(_inner(equation))
        devices = 1
        if equation.primitive.name == "shard_map":
            mesh = equation.params["mesh"]
            axes = equation.params.get("newly_manual_axes", mesh.axis_names)
            devices = math.prod(mesh.shape[axis] for axis in axes)
        elif equation.primitive.name == "call_exported":
            devices = _mapped_over(equation.params["exported"].mlir_module())
        for one in inner:
            more = _weights(one)
            written, whole = written + more[0], whole + more[1] * devices
        if not inner:
            written, whole = written + _weight(equation), whole + _weight(equation) * devices
    return written, whole


def _mapped_over(exported: str) -> int:
    """Returns the devices of the axes over which an exported program, a `shard_map`, is mapped."""
    manual = re.search(r"manual_axes=\{([^}]*)\}", exported)
    sizes = dict(re.findall(r'"(\w+)"=(\d+)', exported))
    names = re.findall(r'"(\w+)"', manual[1]) if manual else []
    return math.prod(int(sizes.get(name, 1)) for name in names)


def _weight(equation: Any) -> float:
    size = sum(math.prod(getattr(one.aval, "shape", ())) for one in equation.outvars)
    if equation.primitive.name == "dot_general":
        (over, _), _ = equation.params["dimension_numbers"]
        return 2.0 * size * math.prod(equation.invars[0].aval.shape[axis] for axis in over)
    if equation.primitive.name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        out = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * size * math.prod(kernel) / max(out, 1)
    return float(size)


def _inner(equation: Any) -> Iterator[Any]:
    """Yields the traces inside of an operation, such as those of a loop."""
    for value in equation.params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            trace = getattr(one, "jaxpr", one)
            if hasattr(trace, "eqns"):
                yield trace
