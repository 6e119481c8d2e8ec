"""What a viewer's web socket may send: messages of a page, and nothing that no page sends."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from distlab_dashboard import DashboardServer, viewer_time
from distlab_dashboard.page_socket import MOST_BYTES, MOST_EVENTS
from distlab_dashboard.viewer_time import AHEAD_SECONDS, ViewerTime
from tests.ui.asking import ask
from tests.ui.conftest import Pages
from tests.ui.viewer import Viewer, in_a_loop, viewing


def token_of(**changes: object) -> str:
    """A session's token that nobody signed."""
    fields = {"session_id": "mine", "session_expiry": 1 << 40, **changes}
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        token_of(),
        token_of() + ".x",
        *(token_of(session_id=one) for one in (3, ["a"], {"a": 1}, None, "")),
        "no-token",
        "x" * 5_000,
    ],
)
def test_only_a_page_of_this_server_opens_a_session(server: DashboardServer, token: str) -> None:
    async def attempt() -> None:
        address = HTTPRequest(f"ws://127.0.0.1:{server.port}/ws")
        socket = await websocket_connect(address, subprotocols=["bokeh", token])
        assert await Viewer(socket).code() == 1008
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
    "no event": lambda _: {},
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_no_page_sends_changes_nothing_and_the_session_goes_on(
    server: DashboardServer, name: str
) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            before = await viewer.settled()
            choice = changed(view(before)["id"], "data", column('{"page": "overview"}'))
            await viewer.patch(FORGED[name](before))
            assert await viewer.document() == before
            await viewer.patch(FORGED[name](before), choice)  # what is allowed beside it is done
            after = await viewer.document()
            assert view_text(after) == '{"page": "overview"}'
            assert len(models(after)) == len(models(before))

    in_a_loop(attempt)


@pytest.mark.parametrize("events", ["none", {"kind": "RootAdded"}, None, 5, ["text", 5, None, []]])
def test_a_patch_without_events_changes_nothing(server: DashboardServer, events: object) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            before = await viewer.settled()
            await viewer.answer(await viewer.send("PATCH-DOC", {"events": events}))
            assert await viewer.document() == before

    in_a_loop(attempt)


def test_five_hundred_new_models_hold_up_nobody(server: DashboardServer) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            before = await viewer.settled()
            began = time.monotonic()
            await viewer.patch(*({"kind": "RootAdded", "model": a_div(i)} for i in range(500)))
            assert (await asyncio.to_thread(ask, server, "health")).status == 200
            assert time.monotonic() - began < 5  # some 85 s, when Bokeh made them
            assert await viewer.document() == before

    in_a_loop(attempt)


def test_a_viewer_that_asks_without_end_takes_a_part_of_the_time(
    server: DashboardServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewer_time, "AHEAD_SECONDS", 0.0)  # it was taken before

    async def attempt() -> None:
        async with viewing(server) as viewer, viewing(server) as other:
            await viewer.settled()
            await other.settled()
            numbers = [await viewer.send("PULL-DOC-REQ", {}) for _ in range(8)]
            began = time.monotonic()
            await other.patch()
            waited = time.monotonic() - began
            for number in numbers:
                await viewer.answer(number)
            assert waited < (time.monotonic() - began) / 2

    in_a_loop(attempt)


def test_a_viewer_that_opens_all_pages_in_a_row_never_waits_for_its_turn() -> None:
    now = [0.0]
    viewer = ViewerTime(lambda: now[0])
    for _ in range(10):
        now[0] += 0.3
        assert viewer.rest_after(0.3) == 0


@pytest.mark.parametrize("seconds", [0.01, 0.2, 0.6])
def test_messages_without_end_take_a_third_of_the_time_after_the_first_seconds(
    seconds: float,
) -> None:
    now = [0.0]
    viewer = ViewerTime(lambda: now[0])
    taken = 0.0
    while now[0] < 300:
        now[0] += seconds
        taken += seconds
        now[0] += viewer.rest_after(seconds)
    assert taken == pytest.approx(100 + AHEAD_SECONDS, rel=0.02)


def test_who_was_silent_for_long_has_no_more_than_before() -> None:
    now = [0.0]
    viewer = ViewerTime(lambda: now[0])
    now[0] = 1e6
    assert viewer.rest_after(AHEAD_SECONDS) == 0
    assert viewer.rest_after(0.1) == pytest.approx(0.3)


def test_the_events_of_a_message_are_bounded(server: DashboardServer) -> None:
    async def attempt() -> None:
        async with viewing(server) as viewer:
            document = await viewer.settled()
            end = chart(document, "DataRange1d")
            for count, shown in ((MOST_EVENTS, MOST_EVENTS), (MOST_EVENTS + 1, MOST_EVENTS)):
                await viewer.patch(*(changed(end, "end", 1 + i) for i in range(count)))
                (found,) = (one for one in models(await viewer.document()) if one["id"] == end)
                assert found["attributes"]["end"] == shown

    in_a_loop(attempt)


async def send_too_long(viewer: Viewer) -> None:
    await viewer.socket.write_message(json.dumps("x" * MOST_BYTES))


async def send_bytes(viewer: Viewer) -> None:
    await viewer.socket.write_message(b"\x01" * 1000, binary=True)


async def announce_buffers(viewer: Viewer) -> None:
    await viewer.send("PATCH-DOC", {"events": []}, num_buffers=10**12)


async def push_a_document(viewer: Viewer) -> None:
    await viewer.send("PUSH-DOC", {"doc": await viewer.document()})


async def send_a_number_as_id(viewer: Viewer) -> None:
    await viewer.send("PATCH-DOC", {"events": []}, msgid=5)


async def send_a_list_as_type(viewer: Viewer) -> None:
    await viewer.send("PATCH-DOC", {"events": []}, msgtype=["PATCH-DOC"])


async def send_no_content(viewer: Viewer) -> None:
    await viewer.send("PATCH-DOC", [])


async def send_no_json(viewer: Viewer) -> None:
    for _ in range(3):
        await viewer.socket.write_message("[" * 50_000)


@pytest.mark.parametrize(
    ("attack", "code"),
    [
        (send_too_long, 1009),
        (send_bytes, 1008),
        (announce_buffers, 1008),
        (push_a_document, 1008),
        (send_a_number_as_id, 1008),
        (send_a_list_as_type, 1008),
        (send_no_content, 1008),
        (send_no_json, 1008),
    ],
)
def test_who_sends_what_is_no_message_of_a_page_is_disconnected_alone(
    server: DashboardServer,
    attack: Callable[[Viewer], Awaitable[None]],
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def attempt() -> None:
        async with viewing(server) as other, viewing(server) as viewer:
            before = await other.settled()
            await attack(viewer)
            assert await viewer.code() == code
            assert await other.document() == before

    in_a_loop(attempt)
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_page_goes_on_after_a_message_that_is_refused(
    server: DashboardServer, new_page: Pages
) -> None:
    watched = new_page()
    with watched.page.expect_response(server.url) as answer:
        watched.open(server.url)
    text = answer.value.text()
    watched.page.evaluate("Bokeh.documents[0].set_title('forged')")
    watched.page.evaluate("Bokeh.documents[0].get_model_by_name('bridge').text = 'forged'")
    for name in ("compile", "events", "overview"):
        watched.tab(name)

    async def attempt() -> None:
        async with viewing(server, text) as viewer:
            document = await viewer.document()
            assert '"page":"overview"' in view_text(document)  # it is this page's session
            assert "forged" not in json.dumps(document)

    with ThreadPoolExecutor(1) as pool:  # the browser's loop runs in this thread
        pool.submit(asyncio.run, attempt()).result()
