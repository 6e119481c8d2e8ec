"""Notebooks as they are stored."""

from __future__ import annotations

import re
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.notebooks.executed import FOLDER, LARGEST, VARIES, changes, read

FIRST_LINE = re.compile(r"^# .+\n\n\*You will see .+\. It takes about (\d+) seconds\.\*\n")
NAME = re.compile(r"[a-z]{2,}\d*(-[a-z0-9]+)*")


def test_notebooks_are_stored_with_outputs_that_need_no_kernel() -> None:
    """They are valid, name their cells, and end with the reader's turn."""
    paths = sorted(FOLDER.glob("*.ipynb"))
    assert len(paths) > 10
    tutorials = (FOLDER.parent / "docs" / "tutorials.md").read_text()
    for path in paths:
        notebook = read(path.stem)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3", path.name
        names = [cell.id for cell in notebook.cells]
        assert len(set(names)) == len(names), path.name
        assert [name for name in names if not NAME.fullmatch(name)] == [], path.name
        for cell in notebook.cells:
            assert cell.metadata in ({}, {"tags": [VARIES]}), f"{path.name}: {cell.id}"
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert not any(cell.execution_count for cell in code), path.name
        shown = [output for cell in code for output in cell.outputs]
        pictures = [text for output in shown for text in output.get("data", {}).values()]
        assert any("data" in output for output in shown), path.name
        assert [
            text[:80]
            for text in pictures
            if len(text) > LARGEST or re.search("<script|<iframe|bokeh", text)
        ] == []
        assert not re.search(r"/(tmp|home|root)/", str(shown)), path.name
        text = "\n".join(cell.source for cell in notebook.cells)
        headings = re.findall(r"^#+ .*", text, re.MULTILINE)
        assert headings[0].startswith("# "), path.name
        assert headings[-1] == "## Your turn", path.name
        line = FIRST_LINE.search(notebook.cells[0].source)
        assert line, path.name
        assert re.search(rf"/{path.name}\).*\| {line[1]} s \|$", tutorials, re.MULTILINE), path.name


def _of(text: str, *tags: str) -> Any:
    outputs = [new_output("stream", text=text)]
    return new_notebook(cells=[new_code_cell(metadata={"tags": [*tags]}, outputs=outputs)])


def test_changes_find_a_number_and_leave_times_alone() -> None:
    text = "8 replicas [1, 12], loss 0.4321 in 12.5 ms, busy 7 %"
    kept = _of(text)
    assert changes(_of("8 replicas [ 1, 12],  loss 0.4329 in 1 s, busy 93 %"), kept) == []
    for old, new in (("8", "7"), ("12]", "13]"), ("0.4321", "0.4421"), (", 12", ""), ("loss", "")):
        assert len(changes(_of(text.replace(old, new)), kept)) == 1
        assert changes(_of(text.replace(old, new)), _of(text, VARIES)) == []
