"""Tornado's private parts: every use of one in the dashboard is in this file.

Tornado may change them in any release. tests/ui/test_web_socket_frames.py then fails.
"""

from __future__ import annotations

from typing import Protocol, cast

from tornado.websocket import WebSocketHandler, WebSocketProtocol, WebSocketProtocol13


class FrameReader(Protocol):
    """A handler of a web socket that is told of each frame."""

    async def on_frame(self) -> None:
        """Notes a frame; the next one is read when this returns."""


class TellingProtocol(WebSocketProtocol13):
    """Tells its handler of each frame: tornado tells of no fragments of messages.

    Its handler is a `FrameReader`.
    """

    async def _receive_frame(self) -> None:
        await super()._receive_frame()
        await cast(FrameReader, self.handler).on_frame()


def telling(made: WebSocketProtocol | None, reader: WebSocketHandler) -> WebSocketProtocol | None:
    """Returns a protocol that tells of frames."""
    if not isinstance(made, WebSocketProtocol13):
        return made
    return TellingProtocol(reader, mask_outgoing=made.mask_outgoing, params=made.params)
