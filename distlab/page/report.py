"""A run as one HTML file: the dashboard's page, for browsers without a server."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from bokeh.document import Document
from bokeh.embed.bundle import Bundle
from bokeh.embed.elements import html_page_for_render_items
from bokeh.embed.util import standalone_docs_json_and_render_items
from bokeh.resources import Resources

from distlab.advice import advise_on
from distlab.events import Source
from distlab.folds import Folds
from distlab.page import facts
from distlab.page.board import Board
from distlab.page.template import page_html, page_variables
from distlab.page.view import View

_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; base-uri 'none'; form-action 'none'"
)
"""The policy of the page: it loads and runs nothing from elsewhere, and no script but its own.

BokehJS compiles the code of its axes' labels with `Function`.
"""

_STATIC = """
html[data-static] .controls, html[data-static] .capture, html[data-static] .timebar,
html[data-static] .share, html[data-static] .tabs a[data-page=events] { display: none !important; }
"""


def write(source: Source, name: str, path: Path) -> None:
    """Writes the page of a run."""
    folds = Folds()
    while folds.read(source):
        pass
    board = Board()
    board.update(folds, View(), everything=True)
    board.set_workers(folds, getattr(source, "living", None))
    shown = facts.collect(
        folds,
        whole=folds,
        live=bool(getattr(source, "live", False)),
        living=getattr(source, "living", None),
        caught_up=True,
        read_share=None,
        name=name,
        batch=None,
        dataset=None,
        advice=advise_on(folds.columns("evidence"), folds.columns("workers")),
        capture_state="",
    )
    board.set_facts(shown)
    path.write_text(_page(board, shown["run"]), encoding="utf-8")


def _page(board: Board, title: str) -> str:
    variables: dict[str, Any] = dict(page_variables())
    variables["page_css"] += _STATIC
    # Made now: no name that was recorded earlier can contain it.
    variables["nonce"] = nonce = secrets.token_urlsafe(16)
    template = page_html().replace("{% extends base %}", "").strip()
    policy = _POLICY.format(nonce=nonce)
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<script nonce=\"{nonce}\">document.documentElement.dataset.static = 'true'</script>"
    )
    template = template.replace("{% block preamble %}", "{% block preamble %}" + head)
    document = Document()
    for root in board.roots().values():
        document.add_root(root)
    # Bokeh's `file_html` would add Panel's scripts, from the network, once Panel is imported.
    library = Resources(mode="inline", components=["bokeh", "bokeh-widgets"])
    # Not `OutputDocumentFor`: it reads the current document, which a server's thread changes
    # for all threads.
    documents, items = standalone_docs_json_and_render_items([document])
    return html_page_for_render_items(
        Bundle(js_raw=library.js_raw),
        documents,
        items,
        title=f"{title} · distlab",
        template=template,
        template_variables=variables,
    )
