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


def test_public_names_exist() -> None:
    assert [name for name in distlab.__all__ if not hasattr(distlab, name)] == []


def test_the_package_lists_its_public_names_and_no_others() -> None:
    assert dir(distlab) == sorted(set(distlab.__all__))
    star: dict[str, object] = {}
    exec("from distlab import *", star)
    assert set(star) - {"__builtins__"} == set(distlab.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    for name in ("nothing", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"module 'distlab' has no attribute '{name}'"):
            getattr(distlab, name)


def test_public_modules_list_names_that_exist() -> None:
    modules = [importlib.import_module(f"distlab.{name}") for name in MODULES]
    assert [
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ] == []


def test_guides_and_notebooks_import_public_modules_alone() -> None:
    texts = [
        path.read_text()
        for pattern in ("README.md", "docs/*.md", "docs/how-to/*.md", "notebooks/*.ipynb")
        for path in sorted(ROOT.glob(pattern))
    ]
    imported = {
        module
        for text in texts
        for module in re.findall(r"(?:from|import) distlab\.([a-z_.]+)", text)
    }
    assert imported <= set(MODULES)


def test_public_names_are_loaded_when_first_used() -> None:
    code = (
        "import sys, distlab\n"
        "assert 'jax' not in sys.modules\n"
        "distlab.MirroredStrategy\n"
        "assert 'jax' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
