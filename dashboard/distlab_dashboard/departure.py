"""Ends the session of a closed page early."""

from __future__ import annotations

from typing import Final

from bokeh.document import Document
from bokeh.events import ConnectionLost, Event
from bokeh.server.contexts import BokehSessionContext

_GRACE_MS: Final = 5_000
"""Milliseconds in which a page that lost its connection may reconnect to its session."""


class Departure:
    """Expires a session once its page has been gone for some seconds.

    The server keeps every unused session for a minute, which a page may need to load its
    scripts over a slow line. A page that was connected needs no such time: its session goes
    earlier. Bokeh reports each lost connection, so that a visit of any length counts.
    """

    def __init__(self, context: BokehSessionContext, document: Document) -> None:
        self._context = context
        self._lost = False
        document.on_event(ConnectionLost, self._note)
        document.add_periodic_callback(self._expire, 1_000)

    def _note(self, event: Event) -> None:
        del event
        self._lost = True

    def _expire(self) -> None:
        session = self._context.session
        if session is None or not self._lost:
            return
        if session.connection_count:
            self._lost = False
        elif session.milliseconds_since_last_unsubscribe > _GRACE_MS:
            session.request_expiration()
