"""What is public: the names of `distlab`, and its documented modules. The rest may move."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import distlab
from tests.public import MODULES

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", distlab.__all__)
def test_a_public_name_can_be_asked_for(name: str) -> None:
    assert getattr(distlab, name) is getattr(distlab, name)


def test_the_package_lists_its_public_names_and_no_others() -> None:
    assert dir(distlab) == sorted(set(distlab.__all__))
    star: dict[str, object] = {}
    exec("from distlab import *", star)
    assert set(star) - {"__builtins__"} == set(distlab.__all__)


@pytest.mark.parametrize("name", ["nothing", "_api_", "__wrapped__", "MirorredStrategy"])
def test_an_unknown_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'distlab' has no attribute '{name}'"):
        getattr(distlab, name)


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_lists_names_that_exist(name: str) -> None:
    module = importlib.import_module(f"distlab.{name}")
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    assert [n for n in names if not hasattr(module, n)] == []


def test_guides_and_notebooks_import_public_modules_alone() -> None:
    texts = [
        path.read_text()
        for pattern in ("README.md", "docs/*.md", "notebooks/*.ipynb")
        for path in sorted(ROOT.glob(pattern))
    ]
    imported = {
        module
        for text in texts
        for module in re.findall(r"(?:from|import) distlab\.([a-z_.]+)", text)
    }
    assert imported <= set(MODULES)


@pytest.mark.parametrize("name", ["MirroredStrategy", "record", "__all__", "data"])
def test_a_public_name_is_loaded_when_it_is_first_asked_for(name: str) -> None:
    code = (
        "import sys, distlab\n"
        "assert 'jax' not in sys.modules\n"
        f"distlab.{name}\n"
        "assert 'jax' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
