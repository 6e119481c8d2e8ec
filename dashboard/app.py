"""The dashboard for Panel's own server: `panel serve dashboard/app.py --args RUN`.

`RUN` is a run's folder or a folder of runs. Without `--args` the environment variable
`DISTLAB_RUN` names the folder. One library serves all sessions of the server.
"""

from __future__ import annotations

import os
import sys

import panel as pn

from distlab.errors import NotARunError
from distlab_dashboard.access.notices import show_notice
from distlab_dashboard.library import Library, library_of
from distlab_dashboard.session import show

_USAGE = "Name a run's folder: panel serve dashboard/app.py --args RUN"


def _library() -> Library:
    """Returns the server's library of the folder."""
    path = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("DISTLAB_RUN", "")
    if not path:
        raise NotARunError(f"The dashboard shows a recorded run, and no folder was named. {_USAGE}")
    libraries: dict[str, Library] = pn.state.cache.setdefault("distlab_libraries", {})
    if path not in libraries:
        library = library_of(path)
        library.start()
        libraries[path] = library
    return libraries[path]


try:
    show(_library())
except NotARunError as error:
    show_notice(error)
