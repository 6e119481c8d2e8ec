"""The dashboard: one page that shows a run, live or from its folder.

Served inside the training process by `serve`, from a folder by
`distlab dashboard RUN`, or with Panel's own command:
`panel serve dashboard/app.py --args RUN`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from distlab.errors import MissingExtraError

if TYPE_CHECKING:
    from distlab_dashboard.server import DashboardServer, serve

__all__ = ["DashboardServer", "serve"]


def __getattr__(name: str) -> object:
    """Loads Panel and Bokeh when the server is first used: `distlab doctor` runs without."""
    if name not in __all__:
        raise AttributeError(f"module 'distlab_dashboard' has no attribute {name!r}")
    try:
        server = import_module("distlab_dashboard.server")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The dashboard needs packages that are not installed ({error.name}). "
            "Install them with: pip install 'distlab[dashboard]'"
        ) from error

    return getattr(server, name)
