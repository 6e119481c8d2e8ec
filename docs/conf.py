"""Sphinx' configuration; `make docs` runs it."""

from __future__ import annotations

import hashlib
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import bokeh

import distlab

os.environ["KERAS_BACKEND"] = "jax"  # the reference imports Keras where it is installed
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))


def _version_of_the_source() -> str:
    found = hashlib.sha256()
    for folder in ("distlab", "dashboard"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


project = "distlab"
release = distlab.__version__
root_doc = "index"
exclude_patterns = ["pictures", "site"]
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "binder",
    "command_help",
    "demo_page",
    "docstrings",
    "links",
    "tutorials",
]

# Pages are Markdown, and a link may name any heading.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

# Notebooks and cells of pages run once for each version of their code and of distlab's; an error
# ends the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "build" / "notebooks" / _version_of_the_source())
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 240
nb_merge_streams = True
nb_ipywidgets_js = {}  # the site loads nothing from a network
# A view's picture: what it shows where no kernel is.
nb_mime_priority_overrides = [
    ("html", kind, None)
    for kind in ("application/vnd.jupyter.widget-view+json", "application/javascript")
]

# The reference is made from the docstrings; links.py links what they put in backticks.
default_role = "py:obj"
autoclass_content = "both"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# The reference has them all, whatever is installed.
LIBRARIES = ("cloudpickle", "dask", "distributed", "flax", "ipyparallel", "keras", "orbax")
autodoc_mock_imports = [name for name in LIBRARIES if find_spec(name) is None]
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"distlab {release}"
html_favicon = "../distlab/_cli/icon.svg"
html_static_path = [
    "site/static",
    str(Path(bokeh.__file__).parent / "server" / "static" / "js" / "bokeh.min.js"),
]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
