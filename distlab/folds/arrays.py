"""The types of the arrays that columns hold."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Pixels: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.float32]

MOST_ENTRIES: Final = 1 << 24
"""The longest list whose length a run states: its file may state any number."""
