"""Notebooks, and what their cells give when they run."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
LIMIT_S = 240
LARGEST = 100_000
"""Characters of a stored picture, at most."""
SHORT = {"01": "EPOCHS = 5", "08": "STEPS = 300", "11": "STEPS = 60", "12": "EPOCHS = 4"}
"""Lengths of the loops that readers watch for half a minute, in tests."""
VARIES = "varies"
"""Tag of a cell whose numbers depend on time, the machine, or the length of such a loop."""
UNSTABLE = re.compile(
    r"0x[0-9a-f]+|[\d.]+ ?(?:%|[mµ]?s\b|[kM]?FLOP)|scratch [\d.]+ .?B|(?:a cell|cell \d+), line"
)
"""Addresses, shares and times; and what depends on the version of XLA."""
KERAS_WARNS = "Explicitly requested dtype int64 requested in ShapeDtypeStruct"
"""Said by Keras without a strategy, with JAX 0.12."""
TOKEN = re.compile(r"\d+\.\d+(?:e[-+]\d+)?|\d+e[-+]\d+|\d+|\S")


def path_of(name: str) -> Path:
    """The stored notebook whose file name begins with `name`, as in `"02"`."""
    (found,) = FOLDER.glob(f"{name}*.ipynb")
    return found


def read(name: str) -> Any:
    """The notebook as it is stored."""
    return nbformat.read(path_of(name), as_version=4)


def execute(name: str, folder: Path, *, short: bool = False) -> Any:
    """The notebook with its outputs, after a kernel of its own ran it in `folder`."""
    notebook = read(name)
    if short and name[:2] in SHORT:
        _shorten(notebook, SHORT[name[:2]])
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=LIMIT_S, startup_timeout=120, resources=where).execute()
    return notebook


def _shorten(notebook: Any, setting: str) -> None:
    """Gives a constant of one cell another value."""
    constant = re.compile(rf"^{setting.partition(' ')[0]} = \d+", re.MULTILINE)
    (watched,) = [cell for cell in notebook.cells if constant.search(cell.source)]
    watched.source = constant.sub(setting, watched.source)


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


def changes(ran: Any, stored: Any) -> list[str]:
    """The cells whose text isn't the stored one, fractions within half a percent."""
    return [
        f"{cell.id} was:\n{_text(kept)}and is now:\n{_text(cell)}"
        for cell, kept in zip(ran.cells, stored.cells, strict=True)
        if cell.cell_type == "code" and VARIES not in kept.metadata.get("tags", [])
        if not _alike(_text(cell), _text(kept))
    ]


def _alike(text: str, kept: str) -> bool:
    found, expected = (TOKEN.findall(UNSTABLE.sub("", one)) for one in (text, kept))
    return len(found) == len(expected) and all(map(_near, found, expected))


def _near(one: str, other: str) -> bool:
    return one == other or (
        len(one) > 1 < len(other)
        and not (one + other).isdecimal()
        and math.isclose(float(one), float(other), rel_tol=0.005, abs_tol=1e-3)
    )


def _text(cell: Any) -> str:
    return "".join(
        output.text if output.output_type == "stream" else output.data["text/plain"] + "\n"
        for output in cell.outputs
        if output.get("name") != "stderr"
    )


def cell(notebook: Any, cell_id: str) -> Any:
    """The cell with this id."""
    (found,) = [cell for cell in notebook.cells if cell.id == cell_id]
    return found


def text_of(notebook: Any, cell_id: str) -> str:
    """What a cell printed, and the plain text of what it showed, in order."""
    parts = []
    for output in cell(notebook, cell_id).outputs:
        if output.output_type == "stream":
            if output.name == "stderr" and KERAS_WARNS in output.text:
                continue
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
