"""The dashboard for Panel's own server: `panel serve dashboard/app.py --args RUN`.

`RUN` is a run's folder or a folder of runs. Without `--args` it is the folder named by
the environment variable `DISTLAB_RUN`. One library of feeds serves all sessions of the
server.
"""

from __future__ import annotations

import os
import sys

import panel as pn

from distlab.errors import NotARunError
from distlab_dashboard.feed import Feed, source_of
from distlab_dashboard.library import Library, library_of
from distlab_dashboard.session import show

_USAGE = "Name a run's folder: panel serve dashboard/app.py --args RUN"


def _library() -> Library:
    """Returns the server's one library of what was named."""
    path = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DISTLAB_RUN", "")
    if not path:
        raise NotARunError(f"The dashboard shows a recorded run, and none was named. {_USAGE}")
    libraries: dict[str, Library] = pn.state.cache.setdefault("distlab_libraries", {})
    if path not in libraries:
        library = library_of(path, lambda source: Feed(source_of(source)))
        library.start()
        libraries[path] = library
    return libraries[path]


try:
    show(_library())
except NotARunError as error:
    pn.pane.Str(str(error), styles={"font-size": "16px", "padding": "24px"}).servable()
