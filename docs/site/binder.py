"""Addresses for Binder become links to the repository that the site is built from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_GITHUB = re.compile(r"github\.com[/:]([\w-]+/[\w.-]+?)(?:\.git)?/?$")


def repository(folder: Path) -> str:
    """Returns the OWNER/REPO of a clone from GitHub, and of all else an empty string."""
    command = ["git", "-C", folder, "remote", "get-url", "origin"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return ""
    found = _GITHUB.search(asked.stdout.strip())
    return found[1] if found else ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Adds the script, which asks the reader where the repository is not known."""
    app.add_js_file("binder.js", **{"data-repository": repository(Path(app.srcdir))})
    return {"parallel_read_safe": True}
