"""The files that Binder reads, and the links by which it is told of them."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.binder import check

ROOT = Path(__file__).parents[2]
BINDER = ROOT / "binder"
SCRIPTS = [BINDER / "postBuild", BINDER / "start", ROOT / ".ci" / "binder-check"]
SITE = ROOT / "docs" / "site"
LINK = re.compile(r"^- .*`(https://mybinder\.org/v2/gh/OWNER/REPO/HEAD.*)`$", re.MULTILINE)
LINKS = LINK.findall((ROOT / "docs" / "binder.md").read_text())
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LIMIT_SECONDS = 120


def start(*command: str) -> str:
    """Returns the output of a command that `binder/start` starts as Binder does."""
    kept = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    started = [str(BINDER / "start"), *command]
    return subprocess.check_output(started, cwd=ROOT, env=kept, text=True, timeout=LIMIT_SECONDS)


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
        [BINDER / "postBuild"], cwd=tmp_path, env={"PATH": path}, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 3
    assert not (tmp_path / "went-on").exists()


def test_start_gives_eight_devices_and_a_notebook_may_choose() -> None:
    code = "import jax, distlab as dl; n = len(jax.devices())\n"
    code += "dl.use_cpu_devices(8); print(n, len(jax.devices()))"
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
    named = [one for extra in extras for one in PROJECT["optional-dependencies"][extra]]
    return set(PROJECT["dependencies"]).union(*map(needs, named))


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


def test_the_check_follows_the_links() -> None:
    opened = [link.partition("?urlpath=")[2] for link in LINKS]
    assert opened == [check.NOTEBOOK, check.DEMO, check.LAB]


def test_the_site_suggests_its_clones_repository(tmp_path: Path) -> None:
    repository = runpy.run_path(str(SITE / "binder.py"))["repository"]
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert repository(tmp_path) == ""
    for url, name in {
        "https://user:secret@github.com/someone/dist.lab.git": "someone/dist.lab",
        "git@github.com:some-one/distlab/": "some-one/distlab",
        "https://example.com/someone/distlab.git": "",
    }.items():
        subprocess.run([*git, "config", "remote.origin.url", url], check=True)
        assert repository(tmp_path) == name


def test_links_lead_to_the_entered_repository(browser: Browser) -> None:
    script = (SITE / "static" / "binder.js").read_text()
    items = "".join(f"<li><code>{link}</code></li>" for link in LINKS)
    page = browser.new_page()
    page.set_content(f'<script data-repository="someone/distlab">{script}</script><ul>{items}</ul>')
    field, hrefs = page.get_by_label("Repository on GitHub"), "(all) => all.map((a) => a.href)"
    for name in ("someone/distlab", "some-one/dist.lab"):
        shown = page.locator("code a").evaluate_all(hrefs)
        assert shown == [link.replace("OWNER/REPO", name) for link in LINKS]
        field.fill("https://github.com/some-one/dist.lab.git")
    field.fill("nothing")
    assert page.locator("code").all_inner_texts() == LINKS
    assert page.locator("code a").count() == 0
    page.close()
