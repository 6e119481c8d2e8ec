"""The layers of docs/architecture.md hold, for lazy imports too, and there is no circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"distlab": ROOT / "distlab", "distlab_dashboard": ROOT / "dashboard"}

# First match wins: a module belongs to the layer of the longest prefix named here.
LAYER_OF = {
    "distlab.errors": "contract",
    "distlab.events": "contract",
    "distlab._counts": "contract",
    "distlab._html": "contract",
    "distlab._bytes": "words",
    "distlab._devices": "devices",
    "distlab._jax_internals": "devices",
    "distlab._seam": "seam",
    "distlab._loop_control": "control",
    "distlab._what_if": "what if",
    "distlab.cluster": "cluster",
    "distlab.cluster_resolver": "cluster",
    "distlab.recording": "recording",
    "distlab.folds": "folds",
    "distlab.insight": "insight",
    "distlab.charts": "charts",
    "distlab.widgets": "widgets",
    "distlab.demo": "demo",
    "distlab.cli": "cli",
    "distlab._cli": "cli",
    "distlab.__main__": "cli",
    "distlab_dashboard": "dashboard",
    # What a page is made of, without a server; exports use it, so it knows no recording.
    "distlab_dashboard.report": "page",
    "distlab_dashboard.board": "page",
    "distlab_dashboard.facts": "page",
    "distlab_dashboard.page": "page",
    "distlab_dashboard.programs": "page",
    "distlab_dashboard.runs_table": "page",
    "distlab_dashboard.event_search": "page",
    "distlab_dashboard.view": "page",
    "distlab": "core",
}

MAY_IMPORT = {
    "words": set(),
    "contract": {"contract"},
    "seam": {"contract"},
    "devices": {"contract", "devices"},
    "cluster": {"contract", "cluster"},
    "control": {"contract", "seam"},
    "core": {"words", "contract", "devices", "seam", "cluster", "control", "core"},
    "what if": {"contract", "core"},  # asks the core's own code, for the explorer
    "recording": {
        *("words", "contract", "devices", "seam", "cluster", "folds", "insight", "page"),
        "recording",
    },
    "folds": {"contract", "folds"},
    "insight": {"words", "contract", "folds", "insight"},
    "charts": {"words", "charts"},
    "widgets": {
        *("words", "contract", "seam", "control", "recording", "folds", "insight", "charts"),
        *("what if", "widgets"),
    },
    "page": {"words", "contract", "control", "folds", "insight", "charts", "page"},
    "dashboard": {
        *("contract", "control", "recording", "folds", "insight", "charts", "page", "dashboard"),
    },
    "public": {
        *("contract", "devices", "seam", "cluster", "control", "core", "recording", "insight"),
        "public",
    },
    "demo": {"contract", "public", "demo"},
    "cli": {"contract", "insight", "recording", "public", "demo", "dashboard", "cli"},
}

# Packages outside of the standard library, beyond numpy, jax and msgspec.
ALSO_USES = {
    "cluster": {"google", "googleapiclient", "kubernetes", "urllib3"},
    "core": {"grain", "psutil"},
    "charts": {"bokeh"},
    "widgets": {"bokeh", "panel", "ipywidgets", "anywidget", "IPython", "traitlets"},
    "page": {"bokeh"},
    "dashboard": {"bokeh", "panel", "tornado"},
    "demo": {"sklearn"},
    "recording": {"pandas", "pyarrow", "pynvml"},
}
MAY_USE_JAX = {"cluster", "devices", "seam", "core", "what if", "recording", "demo", "cli"}


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path
    return found


MODULES = modules()


def layer_of(module: str) -> str:
    if module in ("distlab", "distlab._api"):
        return "public"
    prefix = max((p for p in LAYER_OF if f"{module}.".startswith(f"{p}.")), key=len)
    return LAYER_OF[prefix]


def imports_of(name: str, *, typing: bool = True) -> Iterator[str]:
    """Yields every module that a file imports, wherever in the file.

    `typing=False` leaves out what stands under `if TYPE_CHECKING:`, which never runs.
    """
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in _nodes(ast.parse(path.read_text(), str(path)), typing):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in MODULES else base
        elif isinstance(node, ast.Call) and _is_import_module(node.func):
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


def _nodes(node: ast.AST, typing: bool) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if typing or not for_types:
            yield from _nodes(child, typing)


def _is_import_module(function: ast.expr) -> bool:
    return (isinstance(function, ast.Attribute) and function.attr == "import_module") or (
        isinstance(function, ast.Name) and function.id in ("import_module", "__import__")
    )


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in FOLDERS


INNER = [name for name in MODULES if name != "distlab"]


@pytest.mark.parametrize("name", INNER)
def test_a_module_imports_only_layers_below_it(name: str) -> None:
    allowed = MAY_IMPORT[layer_of(name)]
    wrong = [m for m in imports_of(name) if is_ours(m) and layer_of(m) not in allowed]
    assert wrong == [], f"{name} is in the layer '{layer_of(name)}', which may import {allowed}"


@pytest.mark.parametrize("name", INNER)
def test_a_module_uses_only_its_layers_packages(name: str) -> None:
    layer = layer_of(name)
    allowed = {"numpy", "msgspec"} | ALSO_USES.get(layer, set())
    if layer in MAY_USE_JAX:
        allowed |= {"jax", "jaxlib"}
    tops = {m.partition(".")[0] for m in imports_of(name) if not is_ours(m)}
    assert tops - set(sys.stdlib_module_names) - allowed == set()


def test_there_is_no_circle() -> None:
    # Only the demo and the command import the public face, which imports the core.
    graph = {
        name: {m for m in imports_of(name, typing=False) if m in INNER and m != name}
        for name in INNER
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle: {' -> '.join(error.args[1])}")


def test_importing_distlab_loads_nothing_that_draws_and_no_tensorflow() -> None:
    heavy = {"panel", "bokeh", "ipywidgets", "anywidget", "IPython", "sklearn", "tensorflow"}
    code = f"import sys, distlab; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_dashboard_installs_under_its_own_name() -> None:
    import distlab_dashboard

    assert Path(distlab_dashboard.__path__[0]).resolve() == FOLDERS["distlab_dashboard"]
