"""Charts of a run in a notebook: `distlab.watch()`, single views, and an explorer.

The packages that draw are imported when the first view is opened.
"""

from distlab.widgets._explorer import Explorer, explorer
from distlab.widgets._view import View
from distlab.widgets._views import (
    Batches,
    Captures,
    Devices,
    Placement,
    Reductions,
    Steps,
    Watch,
    watch,
)

__all__ = [
    "Batches",
    "Captures",
    "Devices",
    "Explorer",
    "Placement",
    "Reductions",
    "Steps",
    "View",
    "Watch",
    "explorer",
    "watch",
]
