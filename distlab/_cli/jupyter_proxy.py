"""The demo as a tile in JupyterLab's launcher, through jupyter-server-proxy.

jupyter-server-proxy finds `demo_tile` by its entry point when a Jupyter server starts, so
nothing here may load JAX or Panel.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

START_SECONDS = 180.0
"""The longest time from a click to the page; jupyter-server-proxy's 5 s are too short."""
EPOCHS = 30
"""Fewer than the command's own 60: on Binder the training has to fit into a CPU-minute."""
NEEDS = ("panel", "sklearn")
NAME = "distlab"
"""The name of the entry point, and of the path of the page."""


def demo_tile() -> dict[str, Any]:
    """Returns the demo's entry for jupyter-server-proxy, which fills in the braces."""
    python = sys.executable.replace("{", "{{").replace("}", "}}")
    options = ["--port", "{port}", "--prefix", f"{{base_url}}{NAME}", "--epochs", str(EPOCHS)]
    return {
        "command": [python, "-m", "distlab", "demo", *options],
        "timeout": START_SECONDS,
        "absolute_url": True,
        # The proxy has checked the user and the origin. The demo itself keeps refusing all
        # hosts and origins but its own, so that no other page can reach it past the proxy.
        "request_headers_override": {
            "Host": "127.0.0.1:{port}",
            "Origin": "http://127.0.0.1:{port}",
        },
        "launcher_entry": {
            "enabled": all(map(find_spec, NEEDS)),
            "title": "distlab demo",
            "icon_path": str(Path(__file__).with_name("icon.svg")),
            "category": "Notebook",
        },
    }
