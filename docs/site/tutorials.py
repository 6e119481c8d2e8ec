"""Tutorials: the notebooks, copied beside the pages, with links that lead to pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

_NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def _copy(app: Sphinx, _config: Config) -> None:
    folder = Path(app.srcdir) / "tutorials"
    folder.mkdir(exist_ok=True)
    texts = {
        path.name: path.read_text().replace("](../docs/", "](../")
        for path in _NOTEBOOKS.glob("*.ipynb")
    }
    for copy in folder.glob("*.ipynb"):
        if copy.name not in texts:
            copy.unlink()
    for name, text in texts.items():
        copy = folder / name
        if not copy.exists() or copy.read_text() != text:
            copy.write_text(text)


def _lead_to_copies(*event: Any) -> None:
    content = event[2]
    content[0] = re.sub(r"\]\(((?:\.\./)*)\.\./notebooks/", r"](\1tutorials/", content[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the handlers."""
    app.connect("config-inited", _copy)
    app.connect("source-read", _lead_to_copies)
    return {"parallel_read_safe": True}
