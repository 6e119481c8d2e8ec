"""The dashboard: one page that shows a run, live or from its folder.

Served inside the training process by `serve`, from a folder by
`distlab dashboard RUN`, or with Panel's own command:
`panel serve dashboard/app.py --args RUN`.
"""

from distlab_dashboard.server import DashboardServer, serve

__all__ = ["DashboardServer", "serve"]
