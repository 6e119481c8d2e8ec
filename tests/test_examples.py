"""Every example in a docstring runs and prints what it shows."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import distlab as dl
from tests import public

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "distlab": ROOT / "distlab",
    "distlab_dashboard": ROOT / "dashboard" / "distlab_dashboard",
}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def _examples() -> Iterator[doctest.DocTest]:
    """Yields one test for each docstring with `>>>`; a module without one is not imported."""
    finder = doctest.DocTestFinder()
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            if ">>> " in path.read_text():
                parts = [package, *path.relative_to(folder).with_suffix("").parts]
                name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                module = importlib.import_module(name)
                yield from (test for test in finder.find(module, name) if test.examples)


EXAMPLES = list(_examples())


def _package(example: doctest.DocTest) -> str:
    """Returns the package of an example: `distlab.values` of `distlab.values.mirrored.Mirrored`."""
    return ".".join(example.name.split(".")[:2])


@pytest.mark.slow
@pytest.mark.usefixtures("own_servers", "own_sigterm")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("package", sorted({_package(example) for example in EXAMPLES}))
def test_examples_print_what_they_show(
    package: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    report: list[str] = []
    for example in EXAMPLES:
        if _package(example) == package:
            monkeypatch.chdir(tmp_path_factory.mktemp("example"))
            example.globs = {"__name__": "__main__"}  # as for a reader who types the example
            runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
            runner.run(example, out=report.append)
    assert report == [], "".join(report)


@pytest.mark.slow
def test_no_example_is_missed() -> None:
    """The finder sees functions, classes, methods and properties; other docstrings need a test."""
    written = sum(
        ">>> " in (ast.get_docstring(node) or "")
        for folder in FOLDERS.values()
        for path in folder.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    assert len(EXAMPLES) == written


_NEED_NONE = ("distlab.charts.", "distlab.errors.", "distlab.events.", "distlab.folds.")
"""What other examples raise, record and draw."""

_INNER = {
    *("Strategy.beside", "Strategy.make_variable"),
    "Strategy.variable_layout",
    *("Dataset.from_plan", "Dataset.with_plan"),
    *("distlab.widgets.Explorer", "distlab.widgets.View", "distlab.widgets.Watch"),
}
"""What distlab's own packages call; `explorer` and `watch` have the examples of the widgets."""


def _need_one() -> dict[str, object]:
    """Returns public functions and classes, and the methods of strategies and datasets."""
    need = {
        name: thing
        for name, thing in public.names().items()
        if (inspect.isclass(thing) or inspect.isfunction(thing))
        and not name.startswith(_NEED_NONE)
        and not isinstance(thing, msgspec.StructMeta)
    }
    for owner in (dl.Strategy, dl.data.Dataset):
        methods = inspect.getmembers(owner, inspect.isfunction)
        need |= {f"{owner.__name__}.{name}": method for name, method in methods if name[0] != "_"}
    return {name: thing for name, thing in need.items() if name not in _INNER}


def test_every_public_name_has_an_example() -> None:
    assert [name for name, thing in _need_one().items() if ">>> " not in str(thing.__doc__)] == []
