"""The demo as a tile in JupyterLab's launcher, by way of jupyter-server-proxy.

jupyter-server-proxy finds `demo_tile` by its entry point when a Jupyter server starts, so
nothing here may load JAX or Panel.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
"""How long a click may take until the page is there; the default of 5 s is too short."""
EPOCHS = 30
"""Fewer than the command's own 60: on Binder all of it has to fit into one CPU-minute."""
NEEDS = ("panel", "sklearn")
NAME = "distlab"
"""Name of the entry point, and of the path under which the page is shown."""


def demo_tile() -> dict[str, Any]:
    """Describes the demo to jupyter-server-proxy, which fills in the braces.

    Returns:
      A configuration of jupyter-server-proxy. There is no tile where the packages
      that the demo needs are not installed.
    """
    python = sys.executable.replace("{", "{{").replace("}", "}}")
    options = ["--port", "{port}", "--prefix", f"{{base_url}}{NAME}", "--epochs", str(EPOCHS)]
    return {
        "command": [python, "-m", "distlab", "demo", *options],
        "timeout": START_SECONDS,
        "absolute_url": True,
        # The proxy has checked by now who asks and from which page. The demo itself goes on
        # refusing all pages but its own, so no other page can reach it past the proxy.
        "request_headers_override": {"Origin": "http://127.0.0.1:{port}"},
        "launcher_entry": {
            "enabled": all(map(find_spec, NEEDS)),
            "title": "distlab demo",
            "icon_path": str(Path(__file__).with_name("icon.svg")),
            "category": "Notebook",
        },
    }
