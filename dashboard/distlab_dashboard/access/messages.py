"""The web socket of a page, which takes the messages that distlab's pages send and no others."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import ColumnDataSource, Plot, Range
from bokeh.util.token import check_token_signature, get_token_payload
from msgspec import Meta, Struct
from panel.io.server import WSHandler

MOST_BYTES: Final = 64 << 10
"""The longest part of a message. The longest that a page sends has some 2 KB."""

_SIZES: Final = ("inner_width", "inner_height", "outer_width", "outer_height")
_ENDS: Final = ("start", "end")
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

    def on_close(self) -> None:
        """Ends the connection; tornado calls it, also after a failed ping, where Bokeh has."""
        with suppress(AssertionError):
            super().on_close()

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
        if not (_fits(header, _Header) and isinstance(asked, dict)):
            self._refuse()
            return
        try:
            session = self.connection.session
        except AssertionError:  # a ping failed, and Bokeh has ended the connection
            return
        if session.destroyed:
            return
        if header["msgtype"] == "PATCH-DOC":
            # An empty patch changes nothing, and is answered like any other.
            asked = {"events": _allowed(asked.get("events"), session.document)}
        else:
            asked = {}
        for part in (header, {}, asked):
            await super().on_message(json.dumps(part))
        await asyncio.sleep(0)  # the turn of the others: nothing more is read before

    def _is_of_a_page(self) -> bool:
        """Returns whether the token is one that this server has signed, and has not expired."""
        server: Any = self.application
        token = cast(str, self._token)
        try:
            signed = check_token_signature(token, server.secret_key, server.sign_sessions)
            return signed and bool(get_token_payload(token)["session_expiry"] > time.time())
        except Exception:  # noqa: BLE001 - whatever a viewer has sent
            return False

    def _refuse(self) -> None:
        self._parts = []
        self.close(_POLICY_CLOSE, "not a message of a page")


class _Header(Struct, forbid_unknown_fields=True):
    """The beginning of a page's message, which has no buffers."""

    msgid: Annotated[str, Meta(max_length=100)]
    msgtype: Literal["PATCH-DOC", "PULL-DOC-REQ"]


class _Model(Struct, forbid_unknown_fields=True):
    id: str


class _Change(Struct, forbid_unknown_fields=True):
    """A change of a model's attribute."""

    kind: Literal["ModelChanged"]
    model: _Model
    attr: str
    new: Any


class _View(Struct, forbid_unknown_fields=True):
    """A column of one text, as Bokeh writes it; `View` reads the text."""

    type: Literal["map"]
    entries: tuple[tuple[Literal["json"], tuple[str]]]


class _NotFinite(Struct, forbid_unknown_fields=True):
    """A number of an empty chart, which has no finite ends."""

    type: Literal["number"]
    value: Literal["nan", "+inf", "-inf"]


_Size: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 20)]
# Bokeh warns of whole numbers that a browser rounds.
_Whole: TypeAlias = Annotated[int, Meta(gt=-(1 << 53), lt=1 << 53)]
_Number: TypeAlias = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


def _allowed(events: object, document: Document) -> list[object]:
    """Returns those events that a page may send."""
    if not isinstance(events, list):
        return []
    return [event for event in events if event == _READY or _is_change(event, document)]


def _is_change(event: Any, document: Document) -> bool:
    """Returns whether an event changes what a page may change, to a value of the right type."""
    if not _fits(event, _Change):
        return False
    model = document.models.get_by_id(event["model"]["id"])
    return any(_fits(event["new"], kind) for kind in _types_of(model, event["attr"]))


def _types_of(model: Model | None, attribute: str) -> tuple[Any, ...]:
    """Returns the types that a page may set an attribute to, none where it may not."""
    if isinstance(model, ColumnDataSource) and model.name == "view" and attribute == "data":
        return (_View,)
    if isinstance(model, Range) and attribute in _ENDS:
        return _Whole, _Number, _NotFinite
    if isinstance(model, Plot) and attribute in _SIZES:
        return (_Size,)
    return ()


def _fits(value: object, kind: Any) -> bool:
    if kind is _Number and not isinstance(value, float):
        return False  # an int is a float for msgspec, but not for Bokeh
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):  # a lone surrogate is no text
        return False
    return True
