"""The numbers by which a process's events refer to its strategies, programs and steps."""

from __future__ import annotations

import itertools
from typing import Final

strategies: Final = itertools.count()
"""Numbers of strategies, and of the meshes on which observed functions run."""

programs: Final = itertools.count()
"""Numbers of compiled programs, and of functions that run eagerly."""

steps: Final = itertools.count()
"""Numbers of steps."""
