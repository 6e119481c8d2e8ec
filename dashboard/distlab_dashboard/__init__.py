"""The dashboard: one page that shows a run, live or from its folder.

Served inside the training process by `serve`, from a folder by
`distlab dashboard RUN`, or with Panel's own command:
`panel serve dashboard/app.py --args RUN`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distlab_dashboard.server import DashboardServer, serve

__all__ = ["DashboardServer", "serve"]


def __getattr__(name: str) -> object:
    """Loads Panel and Bokeh when the server is first used: `distlab doctor` runs without."""
    if name not in __all__:
        raise AttributeError(f"module 'distlab_dashboard' has no attribute {name!r}")
    from distlab_dashboard import server

    return getattr(server, name)
