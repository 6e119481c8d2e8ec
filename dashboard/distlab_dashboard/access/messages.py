"""The web socket of a page, which takes the messages that distlab's pages send and no others."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any, Final, cast

from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import ColumnDataSource, Plot, Range
from bokeh.server.tornado import BokehTornado
from bokeh.util.token import check_token_signature, get_token_payload
from panel.io.server import WSHandler

MOST_BYTES: Final = 64 << 10
"""The longest part of a message. The longest that a page sends has some 2 KB."""

_PATCH: Final = "PATCH-DOC"
_PULL: Final = "PULL-DOC-REQ"
_MOST_ID: Final = 100
_MOST_PIXELS: Final = 1 << 20
_MOST_WHOLE: Final = (1 << 53) - 1
_SIZES: Final = ("inner_width", "inner_height", "outer_width", "outer_height")
_ENDS: Final = ("start", "end")
_NOT_FINITE: Final = [{"type": "number", "value": value} for value in ("nan", "+inf", "-inf")]
_POLICY_CLOSE: Final = 1008

_READY: Final = {
    "kind": "MessageSent",
    "msg_type": "bokeh_event",
    "msg_data": {"type": "event", "name": "document_ready", "values": {"type": "map"}},
}


class PageSocket(WSHandler):
    """A filter before Bokeh's web socket, whose protocol lets a viewer change any model.

    Bokeh would also make models, unpack arrays and keep buffers that a viewer sends, all in the
    process that trains. Here, events of other kinds are left out, and the connection of who
    sends what is no page's message at all is closed.
    """

    # Bokeh's handlers get what they need from their constructor's arguments, which come here too.
    def initialize(self, application_context: object, bokeh_websocket_path: object) -> None:
        """Begins without a message; tornado calls it for each connection."""
        del application_context, bokeh_websocket_path
        self._parts: list[str] = []

    def open(self, *args: object, **kwargs: object) -> None:
        """Opens the session of a page of this server; tornado calls it."""
        if self._is_of_a_page():
            super().open(*args, **kwargs)  # type: ignore[no-untyped-call]
        else:
            self._refuse()

    async def on_message(self, fragment: str | bytes) -> None:
        """Takes a part of a message: its header, its metadata or its content."""
        if self.ws_connection is None:  # it was closed, and this was sent before that came
            return
        if isinstance(fragment, bytes) or self.connection is None:
            self._refuse()
            return
        self._parts.append(fragment)
        if len(self._parts) < 3:
            return
        (head, _, content), self._parts = self._parts, []
        try:
            header, asked = json.loads(head), json.loads(content)
        except (ValueError, RecursionError):
            header = asked = None
        if not (_is_header(header) and isinstance(asked, dict)):
            self._refuse()
            return
        session = self.connection.session
        if session.destroyed:
            return
        if header["msgtype"] == _PATCH:
            # An empty patch changes nothing, and is answered like any other.
            asked = {"events": _allowed(asked.get("events"), session.document)}
        else:
            asked = {}
        for part in (header, {}, asked):
            await super().on_message(json.dumps(part))
        await asyncio.sleep(0)  # the turn of the others: nothing more is read before

    def _is_of_a_page(self) -> bool:
        """Returns whether the token is one that this server has signed, and has not expired."""
        server, token = cast(BokehTornado, self.application), cast(str, self._token)
        try:
            signed = check_token_signature(token, server.secret_key, server.sign_sessions)
            return signed and bool(get_token_payload(token)["session_expiry"] > time.time())
        except Exception:  # noqa: BLE001 - whatever a viewer has sent
            return False

    def _refuse(self) -> None:
        self._parts = []
        self.close(_POLICY_CLOSE, "not a message of a page")


def _is_header(header: object) -> bool:
    """Returns whether this begins a message of a page, which has no buffers."""
    return (
        isinstance(header, dict)
        and header.keys() == {"msgid", "msgtype"}
        and isinstance(header["msgid"], str)
        and len(header["msgid"]) <= _MOST_ID
        and header["msgtype"] in (_PATCH, _PULL)
    )


def _allowed(events: object, document: Document) -> list[object]:
    """Returns those events that a page may send."""
    if not isinstance(events, list):
        return []
    return [event for event in events if event == _READY or _is_change(event, document)]


def _is_change(event: object, document: Document) -> bool:
    """Returns whether an event changes what a page may change, to a value of the right type."""
    if not isinstance(event, dict) or event.keys() != {"kind", "model", "attr", "new"}:
        return False
    model, attribute = event["model"], event["attr"]
    if event["kind"] != "ModelChanged" or not isinstance(attribute, str):
        return False
    if not isinstance(model, dict) or model.keys() != {"id"} or not isinstance(model["id"], str):
        return False
    changed = document.models.get_by_id(cast(Any, model["id"]))
    fits = None if changed is None else _rule(changed, attribute)
    return fits is not None and fits(event["new"])


def _rule(model: Model, attribute: str) -> Callable[[object], bool] | None:
    """Returns what a page may set an attribute to, None for one that it may not set."""
    if isinstance(model, ColumnDataSource) and model.name == "view" and attribute == "data":
        return _is_view
    if isinstance(model, Range) and attribute in _ENDS:
        return _is_number
    if isinstance(model, Plot) and attribute in _SIZES:
        return _is_size
    return None


def _is_view(value: object) -> bool:
    """Returns whether this is a column of one text, as Bokeh writes it; `View` reads the text."""
    if not isinstance(value, dict) or value.keys() != {"type", "entries"}:
        return False
    match value["type"], value["entries"]:
        case "map", [["json", [str()]]]:
            return True
    return False


def _is_number(value: object) -> bool:
    """Returns whether this is a number as Bokeh writes it: empty charts have no finite ends."""
    if isinstance(value, dict):
        return value in _NOT_FINITE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # Bokeh warns of whole numbers that a browser rounds.
    most = _MOST_WHOLE if isinstance(value, int) else sys.float_info.max
    return -most <= value <= most


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_PIXELS
