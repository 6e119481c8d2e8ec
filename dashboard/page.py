"""The page: its HTML, style and script, which lie beside this file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import panel as pn

from distlab.charts import theme


@cache
def _asset(name: str) -> str:
    return files("distlab_dashboard").joinpath(name).read_text(encoding="utf-8")


def page_template() -> pn.Template:
    """Returns the page without its charts; they have names in its HTML."""
    template = pn.Template(_asset("page.html"))
    template.add_variable("theme_css", theme.CSS)
    template.add_variable("page_css", _asset("page.css"))
    template.add_variable("page_js", _asset("page.js"))
    return template
