"""map: a function of each element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data._convert import to_numpy
from distlab.data._engine import Element, Mapped, Stream
from distlab.data._nest import call_with, leaves, map_nest
from distlab.data._parallel import ParallelMapped
from distlab.data._plan import Opener, Reading, Unary, open_plan
from distlab.data._spec import TensorSpec, spec_of, zeros


@dataclass(frozen=True, eq=False)
class Map(Unary):
    """Applies `function` to each element's value.

    Attributes:
      function: The function.
      threads: The number of threads that call it; -1 chooses, None means none.
    """

    function: Callable[..., Any]
    threads: int | None

    @functools.cached_property
    def spec(self) -> Any:
        """The specs of the function's result for the input's first element, or for zeros.

        A first dimension is None when it equals that of an input component whose
        spec has None there.
        """
        first = next(iter(open_plan(self.input, Reading(peek=True))), None)
        value = zeros(self.input.spec) if first is None else first.value
        result = spec_of(to_numpy(call_with(self.function, value)))
        given = zip(leaves(self.input.spec), leaves(value), strict=True)
        unknown = {value.shape[0] for spec, value in given if spec.rank and spec.shape[0] is None}
        return map_nest(lambda spec: _forget_first(spec, unknown), result)

    @property
    def exact(self) -> bool:
        """No: other elements may have other shapes."""
        return False

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the results."""
        stream = open_input(self.input, reading)
        if self.threads is None:
            return Mapped(stream, self._apply)
        return ParallelMapped(stream, self._apply, self.threads)

    def _apply(self, element: Element) -> Element:
        return Element(to_numpy(call_with(self.function, element.value)), element.indices)


def _forget_first(spec: TensorSpec, unknown: set[int]) -> TensorSpec:
    if spec.rank and spec.shape[0] in unknown:
        return TensorSpec((None, *spec.shape[1:]), spec.dtype)
    return spec
