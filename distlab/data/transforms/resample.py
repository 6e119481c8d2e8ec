"""rejection_resample: elements dropped at random, so that classes have given shares."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.data.plan.engine import Element, Stream
from distlab.data.plan.nest import call_with
from distlab.data.plan.plan import UNKNOWN_CARDINALITY, Opener, Reading, Unary
from distlab.data.plan.replay import ReplayedElements, reading_of
from distlab.data.plan.seeded import Draws, Seeded
from distlab.data.plan.spec import TensorSpec
from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown

_SMOOTHING = 10
_Shares = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, eq=False)
class RejectionResample(Unary, Seeded):
    """Pairs `(class, element)` of the elements that are kept.

    Attributes:
      class_of: A function from an element's value to the number of its class.
      target: The share that each class is to have.
      initial: The share that each class has in the input; None counts them.
    """

    class_of: Callable[..., Any]
    target: _Shares
    initial: _Shares | None

    @property
    def spec(self) -> Any:
        """A pair of an int32 scalar's spec and the input's."""
        return (TensorSpec((), np.dtype(np.int32)), self.input.spec)

    @property
    def cardinality(self) -> int:
        """Unknown, because chance decides."""
        return UNKNOWN_CARDINALITY

    def read(self, reading: Reading, open_input: Opener) -> Stream:
        """Opens the pairs."""
        stream = open_input(self.input, reading)
        return ReplayedElements(lambda: self._kept(stream, reading))

    def _kept(self, stream: Stream, reading: Reading) -> Iterator[Element]:
        points = Draws(functools.partial(self._points, reading))
        counts = np.full(len(self.target), float(_SMOOTHING))
        chances = None if self.initial is None else _chances(self.target, self.initial)
        with reading_of(stream) as reader:
            for element in reader:
                number = self._class_of(element)
                if self.initial is None:
                    counts[number] += 1
                    chances = _chances(self.target, counts / counts.sum())
                assert chances is not None
                if points.next() < chances[number]:
                    yield Element((np.int32(number), element.value), element.indices)

    def _points(self, reading: Reading, chunk: int, count: int) -> Any:
        return self.generator(reading, chunk).random(count)

    def _class_of(self, element: Element) -> int:
        answer = np.asarray(call_with(self.class_of, element.value))
        if answer.size != 1 or answer.dtype.kind not in "iub":
            raise InvalidArgumentError(
                f"class_func of rejection_resample must return one integer, got {shown(answer)}"
            )
        if not 0 <= answer.item() < len(self.target):
            raise InvalidArgumentError(
                f"class_func of rejection_resample must return a number from 0 to "
                f"{len(self.target) - 1}, one for each share in target_dist, got {answer.item()}"
            )
        return int(answer.item())


def shares(name: str, values: Any) -> _Shares:
    """Returns the shares of classes."""
    try:
        array = np.asarray(values, np.float64)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        array = np.empty(0)
    if array.ndim != 1 or (array < 0).any() or not np.isclose(array.sum(), 1, atol=1e-3):
        raise InvalidArgumentError(
            f"{name} of rejection_resample must be the shares of the classes, with the sum 1, got "
            f"{shown(values)}. Write for example [0.5, 0.5]."
        )
    return array


def _chances(target: _Shares, initial: _Shares) -> _Shares:
    """Returns the chance of each class to be kept: 1 for the one that is rarest by comparison."""
    ratios = np.divide(target, initial, out=np.zeros_like(target), where=initial > 0)
    most = ratios.max()
    return ratios / most if most else ratios
