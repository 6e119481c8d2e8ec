"""Kinds of leaves: each is saved as an entry, perhaps with an array, and restored from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

import numpy as np

from distlab.errors import ArgumentTypeError
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.integrations.orbax.workers import own_entry, workers_fault
from distlab.text.shown import shown

Put: TypeAlias = Callable[[], Any]
"""Puts a restored value in its place, and returns the leaf or its replacement."""

NUMBERS: Final = (bool, int, float)


class Kind(ABC):
    """A kind of leaf."""

    @abstractmethod
    def accepts(self, leaf: Any) -> bool:
        """Returns whether a value is a leaf of this kind."""

    @abstractmethod
    def saved(self, name: str, leaf: Any) -> Saved:
        """Returns a leaf as it is written; its array is a copy."""

    @abstractmethod
    def fault(self, leaf: Any, entry: Entry) -> str:
        """Returns why a leaf can't be restored from an entry; empty where it can."""

    @abstractmethod
    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:
        """Places a restored value on the leaf's devices, and changes nothing yet."""


@final
class Python(Kind):
    """Numbers and strings."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one of Python's."""
        return isinstance(leaf, bool | int | float | str) and not isinstance(leaf, np.generic)

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        """Returns it."""
        return Saved(Entry("python", value=leaf))

    def fault(self, leaf: Any, entry: Entry) -> str:
        """A number is restored from any one number."""
        if isinstance(leaf, str):
            fits = isinstance(entry.value, str)
        else:
            one = entry.kind == "value" and entry.shape == ()
            fits = one or (entry.kind == "python" and isinstance(entry.value, NUMBERS))
        return "" if fits else f"is {type(leaf).__name__} here, and {entry} in the checkpoint"

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:
        """Returns the saved one, of the leaf's type."""
        value = entry.value if array is None else array.item()
        return lambda: type(leaf)(value)


@final
class Position(Kind):
    """Iterators with Grain's `get_state` and `set_state`: distlab's and Grain's."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it has these methods."""
        return all(hasattr(leaf, name) for name in ("__next__", "get_state", "set_state"))

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        """Returns its position. Some of Grain's iterators give it as bytes."""
        state = leaf.get_state()
        if isinstance(state, bytes):
            return Saved(Entry("position", dtype="bytes", value=state.decode("latin-1")))
        return Saved(Entry("position", value=state))

    def fault(self, leaf: Any, entry: Entry) -> str:  # noqa: ARG002
        """The iterator itself checks that the position is one of its pipeline."""
        if entry.kind != "position":
            return f"is an iterator here, and {entry} in the checkpoint"
        return workers_fault(entry)

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:  # noqa: ARG002
        """Moves the iterator."""
        entry = own_entry(entry)
        value = entry.value.encode("latin-1") if entry.dtype == "bytes" else entry.value

        def move() -> Any:
            leaf.set_state(value)
            return leaf

        return move


@final
class Generator(Kind):
    """NumPy's random generators."""

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is one."""
        return isinstance(leaf, np.random.Generator)

    def saved(self, name: str, leaf: Any) -> Saved:  # noqa: ARG002
        """Returns its state."""
        return Saved(Entry("generator", value=leaf.bit_generator.state))

    def fault(self, leaf: Any, entry: Entry) -> str:
        """It must be of the same kind."""
        here = type(leaf.bit_generator).__name__
        if entry.kind == "generator" and entry.value["bit_generator"] == here:
            return ""
        return f"is a {here} generator here, and {entry} in the checkpoint"

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:  # noqa: ARG002
        """Sets the state."""

        def move() -> Any:
            leaf.bit_generator.state = entry.value
            return leaf

        return move


@final
class Refused(Kind):
    """Types that can't be saved, and must not be lost in silence."""

    def __init__(self, *types: type) -> None:
        self._types = types

    def accepts(self, leaf: Any) -> bool:
        """Returns whether it is of one of the types."""
        return isinstance(leaf, self._types)

    def saved(self, name: str, leaf: Any) -> Saved:
        """Raises the error."""
        raise refusal(name, leaf)

    def fault(self, leaf: Any, entry: Entry) -> str:  # noqa: ARG002
        """It can't be restored either."""
        return f"is a {type(leaf).__name__}, which a checkpoint can't hold"

    def placed(self, leaf: Any, entry: Entry, array: np.ndarray | None) -> Put:  # noqa: ARG002
        """Is not called: `fault` found one."""
        return lambda: leaf


def refusal(name: str, leaf: Any) -> ArgumentTypeError:
    """Returns the error for a value that can't be saved."""
    return ArgumentTypeError(
        f"{name} is {shown(leaf)}, a {type(leaf).__name__}, which a checkpoint can't hold. It "
        "holds variables, arrays, per-replica values, numbers, strings, iterators, nests of "
        "these, and objects with attributes that are these."
    )
