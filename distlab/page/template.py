"""The page's HTML, styles and script, joined from the files in this folder."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

from distlab.charts import theme

PAGES: Final = (
    *("runs", "overview", "batches", "devices", "workers", "servers", "steps"),
    *("reductions", "placement", "compile", "events", "compare"),
)
_SCRIPTS: Final = (
    *("start", "address", "texts", "batches", "tables", "time", "loops", "events", "runs"),
    *("simulation", "exports", "connect"),
)


@cache
def _asset(name: str) -> str:
    return files("distlab.page").joinpath(name).read_text(encoding="utf-8")


@cache
def page_html() -> str:
    """Returns the page's HTML: a template of `page_variables` and the charts' roots."""
    sections = "\n".join(_asset(f"sections/{name}.html") for name in PAGES)
    return _asset("page.html").replace("<!-- sections -->", sections)


@cache
def page_variables() -> dict[str, str]:
    """Returns the style sheets and the script, by their names in the page's HTML."""
    parts = "\n".join(_asset(f"scripts/{name}.js") for name in _SCRIPTS)
    return {
        "theme_css": theme.CSS,
        "page_css": _asset("page.css"),
        "page_js": f'"use strict";\n(() => {{\n{parts}}})()',
    }
