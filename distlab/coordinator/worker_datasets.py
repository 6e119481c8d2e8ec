"""Sources of a worker's dataset: a dataset, or a function that returns one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import jax
import numpy as np

from distlab.errors import StructureError
from distlab.text.shown import shown
from distlab.values.checks import function_name

_DATA: Final = (str, bytes, tuple, Mapping, np.ndarray, jax.Array)
"""One element, or its rows: no dataset of batches."""


def dataset_of(source: Any) -> Any:
    """Returns the dataset that a source is or makes."""
    if not callable(source):
        require_dataset(source)
        return source
    made = source()
    if not _is_dataset(made):
        raise StructureError(
            f"{function_name(source)} must return a worker's dataset, an iterable of batches, but "
            f"returned {shown(made)}. Return a distlab.data.Dataset, or a distributed dataset."
        )
    return made


def require_dataset(source: Any) -> None:
    """Checks that each worker can read a source from its beginning."""
    if not _is_dataset(source) or isinstance(source, Iterator):
        raise StructureError(
            "create_per_worker_dataset needs a dataset, of which each worker reads all, or a "
            f"function that returns one, got {shown(source)}. Pass a distlab.data.Dataset, or a "
            "function without arguments that makes it."
        )


def _is_dataset(made: Any) -> bool:
    return isinstance(made, Iterable) and not isinstance(made, _DATA)
