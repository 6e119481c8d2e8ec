"""The site has every page and public name, its links lead somewhere, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distlab
from distlab import charts, widgets
from tests import public

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text() for path in DOCS.rglob("*.md")}
REFERENCE = "".join(text for page, text in PAGES.items() if page.startswith("reference/"))
SHOWN = set(re.findall(r"^\.\. (?:auto\w+|py:data):: ([\w.]+)", REFERENCE, re.MULTILINE))
CELL = re.compile(r"```\{code-cell\}\n(?::[^\n]*\n)*(.*?)```", re.DOTALL)
LINKED = [
    *(DOCS / page for page in sorted(PAGES)),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
]


def test_the_navigation_has_every_page_once() -> None:
    trees = re.findall(r"```{toctree}\n(.*?)```", PAGES["index.md"], re.DOTALL)
    lines = [line for tree in trees for line in tree.splitlines() if line and ":" not in line]
    pages = [re.sub(r".*<(.+)>", r"\1", line) for line in lines]
    assert pages[0] == "self"
    pages[0] = "index"
    notebooks = [f"tutorials/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert sorted(pages) == sorted([page.removesuffix(".md") for page in PAGES] + notebooks)
    assert [name for name in notebooks if Path(name).name not in PAGES["tutorials.md"]] == []


def test_the_gallery_has_every_chart_and_widget() -> None:
    drawn = {"Chart", "DataPatch", "TrafficRow", "data_patch", "reduction_rows", "say_not_drawn"}
    wanted = {*charts.__all__, *widgets.__all__} - drawn - {"theme", "units", "Explorer", "View"}
    text = PAGES["gallery.md"]
    assert [
        name for name in sorted(wanted - {"Watch"}) if not re.search(rf"\b{name}\b", text)
    ] == []


@pytest.mark.slow
@pytest.mark.usefixtures("own_servers")
@pytest.mark.parametrize("page", [page for page in PAGES if CELL.search(PAGES[page])])
def test_the_cells_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(CELL.findall(PAGES[page]))
    exec(compile(code, page, "exec"), {"__name__": "__main__"})


def test_the_reference_has_every_public_name_and_no_other() -> None:
    names = public.names()
    shown = {name for name in names if name in SHOWN or name.rpartition(".")[0] in SHOWN}
    same = {id(names[name]) for name in shown if callable(names[name])}  # under another name
    assert [name for name in names if name not in shown and id(names[name]) not in same] == []
    modules = {f"distlab.{module}" for module in public.MODULES}
    assert SHOWN - {*names} - modules == {
        "distlab.integrations.dask.cluster.ParameterServerCluster",
        "distlab.integrations.ipyparallel.cluster.Cluster",
        "distlab.observing.compilations.Compilation",
        "distlab.observing.observed.Observed",
        "distlab.placement.Placed",
        "distlab.placement.PlacedArray",
        "distlab.programs.report.Divisible",
        "distlab.programs.report.ProgramMemory",
        "distlab.programs.report.ProgramReport",
        "distlab.recording.Recording",
        "distlab.simulation.report.SimulatedMesh",
        "distlab.simulation.report.Simulation",
    }


def test_links_lead_to_a_file_and_a_heading() -> None:
    assert [
        f"{page.name} links to {target}#{anchor}"
        for page in LINKED
        for target, anchor in _links(page)
        if not _leads(page.parent / target if target else page, anchor)
    ] == []


def _links(page: Path) -> list[tuple[str, str]]:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text)


def _leads(path: Path, anchor: str) -> bool:
    return path.exists() and (not anchor or anchor in _anchors(path))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_code_names_what_exists() -> None:
    assert [
        f"{page.name} names dl.{name}"
        for page in LINKED
        for name in re.findall(r"`(?:dl|distlab)\.([\w.]+)(?:\([^`]*)?`", page.read_text())
        if not _exists(name)
    ] == []


def _exists(name: str) -> bool:
    found: object = distlab
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is not None


def test_each_promise_of_security_names_tests_that_exist() -> None:
    named = set(re.findall(r"`([\w/]*test_\w+\.py)`", PAGES["security.md"]))
    tests = {*map(str, (ROOT / "tests").rglob("test_*.py"))}
    assert len(named) > 10
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in tests)] == []
