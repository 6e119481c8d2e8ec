"""Budgets of lines, files and private interfaces: who needs more edits a number here."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ("distlab", "dashboard/distlab_dashboard")

SOURCE_LINES = 87_200
TEST_LINES = 67_800
FILES_PER_PACKAGE = 25  # subpackages not counted
JAX_INTERNAL_MODULES = 10

COUNTS_REFERENCES: set[str] = set()
"""Files where memory is donated."""


def _files(*folders: str) -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each Python file."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text()


def _lines(*folders: str) -> int:
    return sum(len(text.splitlines()) for _, text in _files(*folders))


def _importers(module: str) -> set[str]:
    """Returns the source files that import a module, or something of it."""
    return {name for name, text in _files(*SOURCE) if module in _imported(text)}


def _imported(text: str) -> set[str]:
    """Returns the modules that a file imports, and the packages above them."""
    found = set[str]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found | {parent for name in found for parent in _parents(name)}


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def test_source_stays_within_its_lines() -> None:
    assert _lines(*SOURCE) <= SOURCE_LINES


def test_tests_stay_within_their_lines() -> None:
    assert _lines("tests") <= TEST_LINES


def test_packages_stay_within_their_files() -> None:
    counts = Counter(Path(name).parent.as_posix() for name, _ in _files(*SOURCE))
    assert {name: n for name, n in counts.items() if n > FILES_PER_PACKAGE} == {}


def test_one_file_knows_the_inside_of_jax() -> None:
    assert _importers("jax._src") == {"distlab/devices/jax_internals.py"}
    text = (ROOT / "distlab" / "devices" / "jax_internals.py").read_text()
    found = re.findall(r"^ *from (jax\._src\S*) import (\w+)", text, re.MULTILINE)
    modules = {base if name[0].isupper() else f"{base}.{name}" for base, name in found}
    assert len(modules) <= JAX_INTERNAL_MODULES


def test_nothing_reads_bytecode() -> None:
    assert _importers("dis") == set()


def test_references_are_counted_where_memory_is_donated() -> None:
    counting = {name for name, text in _files(*SOURCE) if "getrefcount" in text}
    assert counting == COUNTS_REFERENCES
