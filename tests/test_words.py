"""Words that docstrings, messages and documents avoid."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
READ = ("README.md", "distlab", "dashboard", "docs", "examples")

AVOIDED = re.compile(
    r"\b(told|tells|in words|for ever|says so|beside it|without a word)\b", re.IGNORECASE
)
"""Errors are raised, values are reported, and a process exits without reporting an error."""

RELATIVE = re.compile(r"(What|Which|Whether|Who|How|Where)\b")
"""A docstring opens with the noun or the verb of what it describes, not with a clause."""


def _files(*suffixes: str) -> Iterator[Path]:
    for name in READ:
        path = ROOT / name
        paths = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (path for path in paths if path.suffix in suffixes)


def test_avoided_words_are_in_no_source_and_no_document() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, match.start())}: {match[0]}"
        for path in _files(".py", ".md", ".html")
        for line, text in _texts(path)
        for match in AVOIDED.finditer(text.replace("\n", " "))
    ]
    assert found == []


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yields a document, or the strings and comments of a program, with their lines."""
    if path.suffix != ".py":
        yield 1, path.read_text()
        return
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                yield token.start[0], token.string


def test_docstrings_open_with_a_noun_or_a_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in _files(".py")
        for line, docstring in _docstrings(ast.parse(path.read_text()))
        if RELATIVE.match(docstring)
    ]
    assert found == []


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields docstrings of modules, classes, functions and names, with their lines."""
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for statement in body if isinstance(body, list) else ():
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement.lineno, statement.value.value
