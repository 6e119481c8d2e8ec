"""What the replicas get of one component of a batch, while it is in host memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

Parts: TypeAlias = Sequence[Any] | np.ndarray
"""A list with one array (or `bytes`) for each replica, or one array `(replicas, ...)`."""
