"""Charts of a run where the program is: `distlab.watch()` in a notebook.

The packages that draw are imported when a view is opened, not before.
"""

from distlab.widgets._watch import Watch, watch

__all__ = ["Watch", "watch"]
