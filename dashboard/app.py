"""The dashboard for Panel's own server: `panel serve dashboard/app.py --args RUN`.

Without `--args`, the run is the folder named by the environment variable
`DISTLAB_RUN`. One feed serves all sessions of the server.
"""

from __future__ import annotations

import os
import sys

import panel as pn

from distlab.errors import NotARunError
from distlab_dashboard.feed import Feed, source_of
from distlab_dashboard.session import show

_USAGE = "Name a run's folder: panel serve dashboard/app.py --args RUN"


def _feed() -> Feed:
    """Returns the server's one feed of the run that was named."""
    path = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DISTLAB_RUN", "")
    if not path:
        raise NotARunError(f"The dashboard shows a recorded run, and none was named. {_USAGE}")
    feeds: dict[str, Feed] = pn.state.cache.setdefault("distlab_feeds", {})
    if path not in feeds:
        feed = Feed(source_of(path))
        feed.start()
        feeds[path] = feed
    return feeds[path]


try:
    show(_feed())
except NotARunError as error:
    pn.pane.Str(str(error), styles={"font-size": "16px", "padding": "24px"}).servable()
