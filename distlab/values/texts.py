"""Texts among the arguments of a compiled replica function."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from distlab.values.not_an_array import NotAnArray


@final
class Texts(NotAnArray):
    """The texts of a batch, in a compiled function: they can be passed on, but not read."""

    __slots__ = ("_label",)

    _what = "holds texts, which programs of devices do not have"
    _passing = "Leave it unread in the function, "
    _reading = (
        "or read it outside with strategy.experimental_local_results, or where functions run "
        "eagerly"
    )

    def __init__(self, label: str) -> None:
        self._label = label

    def __repr__(self) -> str:
        """Names the argument."""
        return self._label


def are_texts(array: Any) -> bool:
    """Returns whether an array holds objects, as those of texts do."""
    return isinstance(array, np.ndarray) and array.dtype.kind == "O"
