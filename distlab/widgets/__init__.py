"""Charts of a run where the program is: `distlab.watch()` in a notebook, and single views.

The packages that draw are imported when a view is opened, not before.
"""

from distlab.widgets._explorer import Explorer, explorer
from distlab.widgets._view import View
from distlab.widgets._views import Batches, Devices, Placement, Reductions, Steps, Watch, watch

__all__ = [
    "Batches",
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
