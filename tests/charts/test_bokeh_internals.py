"""The private attributes of Bokeh that distlab uses exist and do what distlab expects."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

from bokeh.core.types import ID
from bokeh.document import Document
from bokeh.models import ColumnDataSource
from bokeh.protocol import Protocol
from bokeh.server.connection import ServerConnection
from bokeh.server.session import ServerSession

from distlab.charts.bokeh_internals import send_to_pages, set_id


def test_an_id_of_our_own_is_what_a_page_receives() -> None:
    source = ColumnDataSource(data={"x": [1]})
    document = Document()
    set_id(source, "page-7")
    document.add_root(source)
    assert source.id == "page-7"
    assert document.get_model_by_id(ID("page-7")) is source
    assert "'page-7'" in str(document.to_json().content)


def test_messages_reach_every_page_of_a_session_in_order() -> None:
    sent: list[tuple[str, Any]] = []

    class Page:
        def __init__(self, name: str) -> None:
            self.name = name

        async def send_message(self, message: Any) -> None:
            sent.append((self.name, message))

    session = ServerSession(ID("a" * 44), Document())
    context: Any = SimpleNamespace(application_context=None)
    for name in ("first", "second"):
        page: Any = Page(name)
        session.subscribe(ServerConnection(Protocol(), page, context, session))
    messages: list[Any] = ["one", "two"]
    with ThreadPoolExecutor() as threads:  # this thread may have an event loop of Playwright's
        threads.submit(asyncio.run, send_to_pages(session, messages)).result()
    assert sorted(sent) == [(name, text) for name in ("first", "second") for text in ("one", "two")]
