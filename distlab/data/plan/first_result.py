"""The specs of a function's results, learned from its result for a first element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distlab.data.plan.nest import leaves, map_nest
from distlab.data.plan.plan import Node, Reading, open_plan
from distlab.data.plan.spec import DatasetSpec, TensorSpec, zeros


def spec_of_results(source: Node, spec_of_result: Callable[[Any], Any]) -> Any:
    """Returns the specs of what a function makes of a node's elements.

    A first dimension is None when it equals that of a component whose own spec has None there.
    """
    first = next(iter(open_plan(source, Reading(peek=True))), None)
    value = zeros(source.spec) if first is None else first.value
    given = zip(leaves(source.spec), leaves(value), strict=True)
    unknown = {value.shape[0] for spec, value in given if spec.rank and spec.shape[0] is None}
    return map_nest(lambda spec: _forget_first(spec, unknown), spec_of_result(value))


def _forget_first(spec: TensorSpec | DatasetSpec, unknown: set[int]) -> TensorSpec | DatasetSpec:
    if isinstance(spec, TensorSpec) and spec.rank and spec.shape[0] in unknown:
        return TensorSpec((None, *spec.shape[1:]), spec.dtype)
    return spec
