"""The page `demo.html`: the demo's training, recorded while the site is built, and exported.

It is made when the notebooks run; pages link to it within `{only} demo`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

LIMIT_SECONDS = 240


def _tag(app: Sphinx, _config: Config) -> None:
    if app.config.nb_execution_mode != "off":
        app.tags.add("demo")


def _export(app: Sphinx, error: Exception | None) -> None:
    if error is not None or "demo" not in app.tags:
        return
    page = Path(app.config.nb_execution_cache_path) / "demo.html"
    if not page.exists():
        _make(page)
    shutil.copy(page, app.outdir)


def _make(page: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "digits"
        train = ["demo", "--epochs", "20", "--no-dashboard", "--exit-when-done", "--record", run]
        for command in (train, ["export", run, "-o", page]):
            subprocess.run(
                [sys.executable, "-m", "distlab", *command],
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=LIMIT_SECONDS,
            )


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the handlers."""
    app.connect("config-inited", _tag)
    app.connect("build-finished", _export)
    return {"parallel_read_safe": True}
