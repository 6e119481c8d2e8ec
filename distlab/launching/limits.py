"""How many processes, and devices of one, a program may ask for."""

from __future__ import annotations

from typing import Final

MOST: Final = 4096
"""More is a slip that would take all memory."""
