"""Bokeh's private attributes: every use of one in distlab is in this file.

Bokeh may change them in any release. tests/charts/test_bokeh_internals.py then fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from bokeh.core.types import ID
from bokeh.model import Model

if TYPE_CHECKING:  # a notebook draws charts without Bokeh's server
    from bokeh.protocol.message import Message
    from bokeh.server.session import ServerSession

C = TypeVar("C")


def set_id(model: Model, name: str) -> None:
    """Sets the id of a model.

    `Model.id` can only be read, and `Model(id=...)` reaches neither models that a
    figure makes by itself nor those of a glyph. Equal ids on all open pages let one
    serialized message update every page.
    """
    model._id = ID(name)  # type: ignore[attr-defined] # Bokeh's types of models leave it out


async def send_to_pages(session: ServerSession, messages: Sequence[Message[C]]) -> None:
    """Sends finished messages to the pages of a session.

    Bokeh's public way writes a message for each session from changes of its own
    document. Here one message, written once, updates all pages that show the same.
    """
    for connection in tuple(session._subscribed_connections):
        for message in messages:
            await connection._socket.send_message(message)
