"""The files that Binder reads: what they ask for, and what they set."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"
SCRIPTS = [BINDER / "postBuild", BINDER / "start", ROOT / ".ci" / "binder-check"]
LIMIT_SECONDS = 120


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def start(*command: str) -> str:
    """Returns the output of a command that `binder/start` starts as Binder does."""
    done = subprocess.run(
        [str(BINDER / "start"), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
    )
    return done.stdout


def test_scripts_can_be_run_and_start_ends_with_the_command() -> None:
    for script in SCRIPTS:
        assert os.access(script, os.X_OK)
        subprocess.run(["bash", "-n", str(script)], timeout=LIMIT_SECONDS, check=True)
    assert (BINDER / "start").read_text().rstrip().splitlines()[-1] == 'exec "$@"'
    assert start("printf", "%s\n", "two words", "*") == "two words\n*\n"


def test_post_build_stops_at_the_first_failure(tmp_path: Path) -> None:
    for name, body in (("python", "exit 3"), ("jupyter", f"touch {tmp_path}/went-on")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [str(BINDER / "postBuild")],
        cwd=tmp_path,
        env={"PATH": path},
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 3
    assert not (tmp_path / "went-on").exists()


def test_start_gives_eight_devices_and_a_notebook_may_choose() -> None:
    code = (
        "import jax; before = len(jax.devices())\n"
        "import distlab as dl; dl.use_cpu_devices(8); print(before, len(jax.devices()))"
    )
    assert start(sys.executable, "-c", code) == "8 8\n"
    code = "import distlab as dl; dl.use_cpu_devices(3)\nimport jax; print(len(jax.devices()))"
    assert start(sys.executable, "-c", code) == "3\n"


def test_requirements_are_those_of_the_extra() -> None:
    lines = (BINDER / "requirements.txt").read_text().splitlines()
    asked = [line for line in lines if line and not line.startswith("#")]
    assert asked == sorted(needs("distlab[binder]"))


def needs(requirement: str) -> set[str]:
    """Returns the packages of a requirement when distlab's own extras are followed."""
    if not requirement.startswith("distlab["):
        return {requirement}
    extras = requirement.removeprefix("distlab[").removesuffix("]").split(",")
    named = [one for extra in extras for one in project()["optional-dependencies"][extra]]
    return set(project()["dependencies"]).union(*map(needs, named))


def test_what_the_notebooks_import_is_installed() -> None:
    named = {re.split(r"[<>=\[]", line)[0] for line in needs("distlab[binder]")}
    named |= {"distlab", "IPython", *sys.stdlib_module_names}  # ipython comes with jupyterlab
    code = [
        "".join(cell["source"])
        for notebook in (ROOT / "notebooks").glob("*.ipynb")
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]
    imported = set(re.findall(r"^ *(?:import|from) (\w+)", "\n".join(code), re.MULTILINE))
    assert "jax" in imported
    assert {"scikit-learn" if name == "sklearn" else name for name in imported} <= named


def test_binder_reads_these_files_alone() -> None:
    # An environment.yml or a Dockerfile, there or in the root, would be used instead.
    kept = {"overrides.json", "postBuild", "requirements.txt", "runtime.txt", "start"}
    assert {file.name for file in BINDER.iterdir()} == kept
    assert not (ROOT / ".binder").exists()
    language, _, version = (BINDER / "runtime.txt").read_text().strip().partition("-")
    assert language == "python"
    assert [int(part) for part in version.split(".")] >= [3, 11]
    overrides = json.loads((BINDER / "overrides.json").read_text())
    notification = overrides["@jupyterlab/apputils-extension:notification"]
    assert notification == {"fetchNews": "false", "checkForUpdates": False}
