"""map: a function of each element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distlab.data.plan.convert import to_numpy, to_own
from distlab.data.plan.engine import Element, Mapped, Stream
from distlab.data.plan.first_result import spec_of_results
from distlab.data.plan.nest import call_with
from distlab.data.plan.parallel import ParallelMapped
from distlab.data.plan.plan import Opener, Reading, Unary
from distlab.data.plan.spec import spec_of


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
        """The specs of the function's first result."""
        return spec_of_results(
            self.input, lambda value: spec_of(to_numpy(call_with(self.function, value)))
        )

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
        return Element(to_own(call_with(self.function, element.value)), element.indices)
