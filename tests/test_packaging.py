"""What is installed and what is distributed, as pyproject.toml and MANIFEST.in say."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("dashboard", "notebook", "keras", "flax", "checkpoint", "cluster", "loggers")
FOLDERS = (
    *(".ci", ".github", "binder", "dashboard", "distlab", "docs", "examples", "notebooks"),
    "tests",
)
FILES = (
    *(".pre-commit-config.yaml", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in"),
    *("Makefile", "README.md", "SECURITY.md", "pyproject.toml"),
)
NOT_OURS = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ipynb_checkpoints")


def _required(*extras: str) -> list[Requirement]:
    lines = [*PROJECT["dependencies"]]
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    required = [Requirement(line) for line in lines if not line.startswith("distlab[")]
    # An extra may bound a dependency of distlab itself once more.
    return list({one.name: one for one in reversed(required)}.values())


def _constraints(name: str) -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "tests" / "matrix" / name).read_text().splitlines():
        if line and not line.startswith("#"):
            found.setdefault(Requirement(line).name, []).append(Requirement(line))
    return found


def test_the_matrix_tests_the_bounds_that_are_promised() -> None:
    lowest, newest = _constraints("lowest.txt"), _constraints("newest.txt")
    for requirement in _required(*EXTRAS):
        (pins,) = lowest[requirement.name]
        bounds = {bound.operator: bound.version for bound in requirement.specifier}
        versions = [Version(pin.version) for pin in pins.specifier]
        assert versions == [Version(bounds[">="])], requirement
        for newer in newest[requirement.name]:
            (pinned,) = newer.specifier
            assert requirement.specifier.contains(pinned.version), requirement


def test_the_source_distribution_holds_all_but_build_output(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, source / folder, ignore=NOT_OURS)
    for file in FILES:
        shutil.copy(ROOT / file, source)
    there = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    build = "from setuptools import build_meta; build_meta.build_sdist('..')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    assert there - held == set()
