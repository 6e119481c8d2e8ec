"""The page: its HTML, style and script, which lie beside this file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from distlab.charts import theme


@cache
def _asset(name: str) -> str:
    return files("distlab_dashboard").joinpath(name).read_text(encoding="utf-8")


def page_html() -> str:
    """Returns the page's HTML: a template that wants `page_variables` and the charts."""
    return _asset("page.html")


def page_variables() -> dict[str, str]:
    """Returns the style sheets and the script that the page's HTML wants."""
    return {
        "theme_css": theme.CSS,
        "page_css": _asset("page.css"),
        "page_js": _asset("page.js"),
    }
