"""BokehJS from the installed package, without a network."""

from __future__ import annotations

import gzip
from functools import cache
from importlib import resources

_SCRIPT = "server/static/js/bokeh.min.js"


@cache
def script() -> bytes:
    """Returns BokehJS without its add-ons, compressed with gzip (about 350 kB)."""
    return gzip.compress(resources.files("bokeh").joinpath(_SCRIPT).read_bytes(), mtime=0)
