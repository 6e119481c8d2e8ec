"""Sphinx' configuration; `make docs` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import distlab

sys.path.insert(0, str(Path(__file__).parent / "site"))

project = "distlab"
release = distlab.__version__
root_doc = "index"
exclude_patterns = ["pictures"]
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "myst_parser",
    "command_help",
    "docstrings",
    "links",
]

# Pages are Markdown, and a link may name any heading.
myst_heading_anchors = 3

# The reference is made from the docstrings; links.py links what they put in backticks.
default_role = "py:obj"
autoclass_content = "both"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"distlab {release}"
html_favicon = "../distlab/_cli/icon.svg"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
