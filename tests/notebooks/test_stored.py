"""Notebooks as they are stored."""

from __future__ import annotations

import re

import nbformat

from tests.notebooks.executed import FOLDER, LARGEST, read

FIRST_LINE = re.compile(r"^# .+\n\n\*You will see .+\. It takes about .+\.\*\n")
NAME = re.compile(r"[a-z]{2,}\d*(-[a-z0-9]+)*")


def test_notebooks_are_stored_with_outputs_that_need_no_kernel() -> None:
    """They are valid, name their cells, and end with the reader's turn."""
    paths = sorted(FOLDER.glob("*.ipynb"))
    assert len(paths) > 10
    for path in paths:
        notebook = read(path.stem)
        nbformat.validate(notebook)
        assert notebook.metadata.kernelspec.name == "python3", path.name
        names = [cell.id for cell in notebook.cells]
        assert len(set(names)) == len(names), path.name
        assert [name for name in names if not NAME.fullmatch(name)] == [], path.name
        for cell in notebook.cells:
            assert set(cell.metadata) <= {"tags"}, f"{path.name}: {cell.id}"
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert not any(cell.execution_count for cell in code), path.name
        shown = [output for cell in code for output in cell.outputs]
        pictures = [text for output in shown for text in output.get("data", {}).values()]
        assert any("data" in output for output in shown), path.name
        assert [
            text[:80] for text in pictures if len(text) > 2 * LARGEST or "<script" in text
        ] == []
        assert not re.search(r"/(tmp|home|root)/", str(shown)), path.name
        text = "\n".join(cell.source for cell in notebook.cells)
        headings = re.findall(r"^#+ .*", text, re.MULTILINE)
        assert headings[0].startswith("# "), path.name
        assert headings[-1] == "## Your turn", path.name
        assert FIRST_LINE.search(notebook.cells[0].source), path.name
