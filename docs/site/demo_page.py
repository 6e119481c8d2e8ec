"""The page `demo.html`: the demo's training, recorded while the site is built, and exported."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

LIMIT_SECONDS = 240


def _export(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.config.nb_execution_mode == "off":
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
    """Connects the handler."""
    app.connect("build-finished", _export)
    return {"parallel_read_safe": True}
