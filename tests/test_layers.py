"""The packages' order in docs/architecture.md holds, for lazy and typing imports too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {
    "distlab": ROOT / "distlab",
    "distlab_dashboard": ROOT / "dashboard" / "distlab_dashboard",
}

_TABLE = """
# The core, from bytes on a line to a strategy. Each package knows those above it alone.
text:
errors:
meshes: text
uncopied: errors
user_code: errors
threads:
file_locks:
events:
cluster: text errors uncopied
launching: text errors threads
devices: text errors user_code threads events
processes: text errors user_code threads launching devices
values: text errors user_code events devices processes
context: text errors user_code devices values
variables: text errors uncopied user_code events devices processes values context
nest: text errors values variables
collectives: text errors user_code events devices processes values context variables
step: text errors user_code events devices processes values context variables collectives
observing: text errors meshes user_code events devices values step
io: text errors values
data: text errors user_code uncopied threads devices values io
input: text errors meshes user_code threads events devices processes values context observing data
exported: text errors devices values context variables collectives step data
placement: text meshes errors devices
strategies: text errors events cluster devices processes values context uncopied variables
  collectives step data input
coordinator: text errors uncopied events devices values variables context strategies
control: text errors uncopied threads events devices processes values context
nn: text errors devices values context
# What shows it: events to columns, columns to charts, advice and a page.
folds: text errors meshes events
charts: text errors folds
advice: text errors meshes events folds
page: text errors meshes events control folds charts advice
tracking: text errors events io folds
# What keeps it. A recording ends with its advice, and exports draw the page.
programs: text errors meshes user_code events step advice
simulation: text errors meshes user_code threads events devices values variables step exported
  programs
profiling: errors user_code threads events devices cluster values advice
runs: text errors file_locks events folds advice page tracking
recording: text errors user_code threads events devices processes observing control advice
  tracking programs profiling runs
widgets: text errors meshes events strategies control folds charts advice page programs
  simulation runs recording
# Other libraries on what stands above, each in its own package.
integrations:
integrations.dask: text errors events cluster launching processes variables step strategies
  coordinator
integrations.flax: text errors devices values context variables step strategies
integrations.orbax: text errors uncopied user_code threads file_locks cluster devices processes
  values context variables data input
integrations.keras: text errors user_code events devices values context variables data input
  strategies control integrations.orbax
integrations.ipyparallel: text errors launching processes runs
integrations.launch: text errors launching integrations.dask integrations.ipyparallel
integrations.mlflow: text errors tracking
integrations.wandb: text errors tracking
training: text errors user_code events devices context variables data input strategies
  integrations.orbax
# The faces: modules of public names, and what uses nothing but them.
cluster_resolver: cluster integrations.dask
estimator: training
experimental: values processes context variables collectives strategies coordinator
  integrations.orbax
flax: errors integrations.flax
keras: errors integrations.keras
loggers: tracking integrations.mlflow integrations.wandb
metrics: integrations.flax integrations.keras
tpu: devices
train: integrations.orbax
public: errors events cluster devices values context variables collectives step observing io data
  input strategies coordinator control nest nn exported placement advice programs simulation runs
  recording widgets training integrations.dask integrations.flax integrations.keras
  integrations.launch integrations.orbax cluster_resolver estimator experimental flax keras
  loggers metrics tpu train
demo: public errors data input
dashboard: text errors events control folds charts advice page simulation runs recording
cli: text errors cluster launching advice runs integrations.dask public demo dashboard profiling
"""
MAY_IMPORT = {
    package: words.split()
    for package, words in re.findall(r"^([\w.]+):((?:[ \w.]|\n  )*)", _TABLE, re.MULTILINE)
}
"""What each package may import, the lowest package first; typing imports count."""

ALSO_USES = {
    "cluster": {"google", "googleapiclient", "kubernetes", "urllib3"},
    "devices": {"psutil"},
    "io": {"google", "google_crc32c", "PIL"},
    "exported": {"flatbuffers"},
    "charts": {"bokeh"},
    "page": {"bokeh"},
    "widgets": {"bokeh", "panel", "ipywidgets", "anywidget", "IPython", "traitlets"},
    "profiling": {"pynvml"},
    "runs": {"pandas", "pyarrow"},
    "recording": set(),
    "simulation": {"cloudpickle", "flatbuffers"},
    "integrations.dask": {"cloudpickle", "dask", "distributed", "ml_dtypes"},
    "integrations.flax": {"flax"},
    "integrations.keras": {"keras"},
    "integrations.ipyparallel": {"ipyparallel", "psutil", "IPython", "zmq"},
    "integrations.mlflow": {"mlflow"},
    "integrations.orbax": {"flax", "orbax"},
    "integrations.wandb": {"wandb"},
    "dashboard": {"bokeh", "panel", "prometheus_client", "tornado"},
    "demo": {"sklearn"},
    "cli": {"packaging"},
}
"""Packages outside of the standard library, beyond numpy and msgspec."""

_NO_JAX = """
text errors meshes threads file_locks folds charts advice page runs widgets dashboard control
tracking integrations integrations.mlflow integrations.wandb flax keras public
"""
USES_NO_JAX = {*_NO_JAX.split()}


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path
    return found


MODULES = modules()


def package_of(module: str) -> str:
    top, _, rest = module.partition(".")
    if top == "distlab_dashboard":
        return "dashboard"
    inner, _, library = rest.partition(".")
    if inner == "integrations" and library:
        return f"integrations.{library.partition('.')[0]}"
    return {"": "public", "_api": "public", "_cli": "cli", "__main__": "cli"}.get(inner, inner)


def imports_of(name: str) -> Iterator[str]:
    """Yields every module that a file imports, wherever in the file, for typing too."""
    path = MODULES[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
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


def _is_import_module(function: ast.expr) -> bool:
    return (isinstance(function, ast.Attribute) and function.attr == "import_module") or (
        isinstance(function, ast.Name) and function.id in ("import_module", "__import__")
    )


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in FOLDERS


INNER = [name for name in MODULES if name != "distlab"]
IMPORTS = {name: list(imports_of(name)) for name in INNER}


def test_the_order_has_no_way_back() -> None:
    packages = list(MAY_IMPORT)
    back = [(p, q) for i, p in enumerate(packages) for q in MAY_IMPORT[p] if q not in packages[:i]]
    assert back == []


def test_the_guide_lists_the_packages_in_this_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Packages, lowest first")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    paths = [path for row in rows for path in re.findall(r"`([\w/]+?)/?`", row)]
    named = [path.replace("/", ".") for path in paths]
    faces = {"_api": "public", "distlab_dashboard": "dashboard", "_cli": "cli"}
    assert list(dict.fromkeys(faces.get(name, name) for name in named)) == list(MAY_IMPORT)


def test_every_package_has_its_place() -> None:
    assert {package_of(name) for name in MODULES} == set(MAY_IMPORT)


def test_modules_import_packages_below_their_own() -> None:
    wrong = [
        f"{name} imports {imported}"
        for name in INNER
        for imported in IMPORTS[name]
        if is_ours(imported)
        and package_of(imported) not in (package_of(name), *MAY_IMPORT[package_of(name)])
    ]
    assert wrong == []


def test_modules_use_the_libraries_of_their_package() -> None:
    wrong = [
        f"{name} imports {top}"
        for name in INNER
        for top in sorted({m.partition(".")[0] for m in IMPORTS[name] if not is_ours(m)})
        if top not in allowed_libraries(package_of(name))
    ]
    assert wrong == []


def allowed_libraries(package: str) -> set[str]:
    jax = set() if package in USES_NO_JAX else {"jax", "jaxlib"}
    return {"numpy", "msgspec", *sys.stdlib_module_names} | jax | ALSO_USES.get(package, set())


def test_there_is_no_circle_of_files() -> None:
    graph = {name: {m for m in IMPORTS[name] if m in INNER and m != name} for name in INNER}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circle: {' -> '.join(error.args[1])}")


def test_importing_distlab_loads_no_drawing_libraries() -> None:
    heavy = {"panel", "bokeh", "ipywidgets", "anywidget", "IPython", "sklearn", "tensorflow"}
    code = f"import sys, distlab; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


def test_dashboard_installs_under_its_own_name() -> None:
    import distlab_dashboard

    assert Path(distlab_dashboard.__path__[0]).resolve() == FOLDERS["distlab_dashboard"]
