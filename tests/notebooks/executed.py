"""Notebooks, and what their cells give when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
LIMIT_S = 240
LARGEST = 100_000
"""Characters of a stored picture, at most."""


def path_of(name: str) -> Path:
    """The stored notebook whose file name begins with `name`, as in `"02"`."""
    (found,) = FOLDER.glob(f"{name}*.ipynb")
    return found


def read(name: str) -> Any:
    """The notebook as it is stored."""
    return nbformat.read(path_of(name), as_version=4)


def execute(name: str, folder: Path) -> Any:
    """The notebook with its outputs, after a kernel of its own ran it in `folder`."""
    notebook = read(name)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=LIMIT_S, startup_timeout=120, resources=where).execute()
    return notebook


def kinds(notebook: Any) -> dict[str, set[str]]:
    """The kinds of output of each code cell: text, pictures, or both."""
    return {
        cell.id: {
            "text" if output.output_type == "stream" else _kind(output.data)
            for output in cell.outputs
            if output.get("name") != "stderr"
        }
        for cell in notebook.cells
        if cell.cell_type == "code"
    }


def _kind(data: Any) -> str:
    return "picture" if {"text/html", "image/png"} & {*data} else "value"


def cell(notebook: Any, cell_id: str) -> Any:
    """The cell with this id."""
    (found,) = [cell for cell in notebook.cells if cell.id == cell_id]
    return found


def text_of(notebook: Any, cell_id: str) -> str:
    """What a cell printed, and the plain text of what it showed, in order."""
    parts = []
    for output in cell(notebook, cell_id).outputs:
        if output.output_type == "stream":
            assert output.name == "stdout", f"{cell_id} warned: {output.text}"
            parts.append(output.text)
        else:
            parts.append(output.data["text/plain"] + "\n")
    return "".join(parts)


def html_of(notebook: Any, cell_id: str) -> str:
    """The HTML that a cell showed, in order."""
    outputs = cell(notebook, cell_id).outputs
    return "".join(output.get("data", {}).get("text/html", "") for output in outputs)


def pictures(notebook: Any) -> list[Any]:
    """What the cells displayed, each as a mapping from MIME type to content."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [output.data for output in outputs if output.output_type == "display_data"]
