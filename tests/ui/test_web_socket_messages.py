"""Messages of a viewer's web socket: those of a page, and no others."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from distlab_dashboard import DashboardServer
from distlab_dashboard.access.messages import MOST_BYTES
from tests.ui.viewer import Viewer, in_a_loop, viewing


def token_of(**changes: object) -> str:
    """A session's token that nobody signed."""
    fields = {"session_id": "mine", "session_expiry": 1 << 40, **changes}
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


def test_only_a_page_of_this_server_opens_a_session(server: DashboardServer) -> None:
    tokens = (token_of(), f"{token_of()}.x", token_of(session_id=3), "no-token", "x" * 5_000)

    async def attempt() -> None:
        for token in tokens:
            address = HTTPRequest(f"ws://127.0.0.1:{server.port}/ws")
            socket = await websocket_connect(address, subprotocols=["bokeh", token])
            assert await Viewer(socket).code() == 1008, token
            socket.close()

    in_a_loop(attempt)


def models(document: object) -> list[dict[str, Any]]:
    """All models of a document."""
    if isinstance(document, list):
        return [model for one in document for model in models(one)]
    if not isinstance(document, dict):
        return []
    own = [document] if document.get("type") == "object" and "id" in document else []
    return own + [model for one in document.values() for model in models(one)]


def view(document: dict[str, Any]) -> dict[str, Any]:
    """The reader's choices that a document holds."""
    (found,) = (one for one in models(document) if one.get("attributes", {}).get("name") == "view")
    return found


def view_text(document: dict[str, Any]) -> str:
    text: str = view(document)["attributes"]["data"]["entries"][0][1][0]
    return text


def changed(model: object, attribute: str, value: object) -> dict[str, object]:
    return {"kind": "ModelChanged", "model": {"id": model}, "attr": attribute, "new": value}


def column(*texts: object) -> dict[str, object]:
    return {"type": "map", "entries": [["json", list(texts)]]}


def a_div(number: int) -> dict[str, object]:
    return {"type": "object", "name": "Div", "id": f"made-{number}", "attributes": {}}


def chart(document: dict[str, Any], kind: str) -> str:
    """The id of a model of a type."""
    found: str = next(one["id"] for one in models(document) if one["name"] == kind)
    return found


def named(document: dict[str, Any], name: str) -> str:
    found: str = next(
        one["id"] for one in models(document) if one.get("attributes", {}).get("name") == name
    )
    return found


@pytest.mark.slow
def test_a_page_may_choose_and_report_ranges_and_sizes(server: DashboardServer) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            document = await viewer.settled()
            plot, its_range = chart(document, "Figure"), chart(document, "DataRange1d")
            await viewer.patch(
                changed(view(document)["id"], "data", column('{"page": "compile"}')),
                changed(its_range, "start", -1.5),
                changed(its_range, "end", 12),
                changed(plot, "inner_width", 667),
            )
            document = await viewer.document()
            found = {one["id"]: one.get("attributes", {}) for one in models(document)}
            assert view_text(document) == '{"page": "compile"}'
            assert (found[its_range]["start"], found[its_range]["end"]) == (-1.5, 12)

    in_a_loop(attempt)


FORGED: dict[str, Callable[[dict[str, Any]], dict[str, object]]] = {
    "a root": lambda _: {"kind": "RootAdded", "model": a_div(0)},
    "no root": lambda page: {"kind": "RootRemoved", "model": {"id": named(page, "bridge")}},
    "a title": lambda _: {"kind": "TitleChanged", "title": "forged"},
    "a text": lambda page: changed(named(page, "bridge"), "text", "forged"),
    "facts": lambda page: changed(named(page, "facts"), "data", column("{}")),
    "rows": lambda page: {
        "kind": "ColumnsStreamed", "model": {"id": named(page, "facts")}, "attr": "data",
        "data": column("{}"), "rollover": None,
    },
    "whole data": lambda page: {
        "kind": "ColumnDataChanged", "model": {"id": view(page)["id"]}, "attr": "data",
        "data": column("{}"), "cols": None,
    },
    "a made model": lambda _: changed(
        {"type": "object", "name": "Div", "id": "made"}, "text", "forged"
    ),
    "two texts": lambda page: changed(view(page)["id"], "data", column("{}", "forged")),
    "a number": lambda page: changed(view(page)["id"], "data", column(5)),
    "a model as a text": lambda page: changed(view(page)["id"], "data", column(a_div(0))),
    "packed bytes": lambda page: changed(
        view(page)["id"], "data", column({"type": "bytes", "data": "H4sIAAAAAAAAAwMAAAAAAAAAAAA="})
    ),
    "a long slice": lambda page: changed(
        view(page)["id"], "data", column({"type": "slice", "start": 0, "stop": 10**15, "step": 1})
    ),
    "a name": lambda page: changed(view(page)["id"], "name", "forged"),
    "a huge end": lambda page: changed(chart(page, "DataRange1d"), "end", 10**400),
    "an end that a browser rounds": lambda page: changed(
        chart(page, "DataRange1d"), "end", 1 << 53
    ),
    "no number": lambda page: changed(chart(page, "DataRange1d"), "end", float("nan")),
    "a range's tags": lambda page: changed(chart(page, "DataRange1d"), "tags", ["forged"]),
    "a negative size": lambda page: changed(chart(page, "Figure"), "inner_width", -1),
    "a true size": lambda page: changed(chart(page, "Figure"), "inner_width", True),
    "another message": lambda _: {
        "kind": "MessageSent", "msg_type": "bokeh_event",
        "msg_data": {"type": "event", "name": "button_click", "values": {"type": "map"}},
    },
    "a lone surrogate": lambda _: {"kind": "\ud800"},
    "no event": lambda _: {},
}  # fmt: skip


@pytest.mark.slow
def test_forged_messages_change_nothing_and_end_no_session(
    server: DashboardServer,
) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            before = await viewer.settled()
            for forged in FORGED.values():
                await viewer.patch(forged(before))
            assert await viewer.document() == before
            for events in ("none", {"kind": "RootAdded"}, None, 5, ["text", 5, None, []]):
                await viewer.answer(await viewer.send("PATCH-DOC", {"events": events}))
            assert await viewer.document() == before
            choice = changed(view(before)["id"], "data", column('{"page": "overview"}'))
            many = ({"kind": "RootAdded", "model": a_div(i)} for i in range(500))
            await viewer.patch(*many, choice)  # what is allowed beside it is done
            after = await viewer.document()
            assert view_text(after) == '{"page": "overview"}'
            assert len(models(after)) == len(models(before))

    in_a_loop(attempt)


async def push_a_document(viewer: Viewer) -> None:
    await viewer.send("PUSH-DOC", {"doc": {**await viewer.document(), "roots": []}})


async def send_no_json(viewer: Viewer) -> None:
    for _ in range(3):
        await viewer.socket.write_message("[" * 50_000)


NO_MESSAGES: dict[str, Callable[[Viewer], Awaitable[object]]] = {
    "bytes": lambda viewer: viewer.socket.write_message(b"\x01" * 1000, binary=True),
    "many buffers": lambda viewer: viewer.send("PATCH-DOC", {"events": []}, num_buffers=10**12),
    "a document": push_a_document,
    "a number as id": lambda viewer: viewer.send("PATCH-DOC", {"events": []}, msgid=5),
    "a list as type": lambda viewer: viewer.send("PATCH-DOC", {"events": []}, msgtype=["x"]),
    "a surrogate as type": lambda v: v.send("PATCH-DOC", {"events": []}, msgtype="\ud800"),
    "no content": lambda viewer: viewer.send("PATCH-DOC", []),
    "no JSON": send_no_json,
    "a long one": lambda viewer: viewer.socket.write_message(json.dumps("x" * MOST_BYTES)),
}


@pytest.mark.slow
def test_a_viewer_that_sends_no_message_is_disconnected_alone(
    server: DashboardServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def attempt() -> None:
        async with viewing(server) as other:
            before = await other.settled()
            for name, attack in NO_MESSAGES.items():
                async with viewing(server) as viewer:
                    await attack(viewer)
                    assert await viewer.code() == (1009 if name == "a long one" else 1008), name
            assert await other.document() == before

    in_a_loop(attempt)
    assert [record for record in caplog.records if record.exc_info] == []
