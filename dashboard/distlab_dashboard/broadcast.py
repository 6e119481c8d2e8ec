"""One look at a run for all pages that show the same: what changed is written once."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from bokeh.models import ColumnDataSource
from bokeh.protocol.message import Message
from bokeh.protocol.messages.patch_doc import patch_doc

from distlab.charts import data_patch
from distlab.folds import Folds
from distlab.page.board import Board
from distlab.page.facts import Facts
from distlab.page.view import View
from distlab_dashboard.feed import Feed

PAGES: Final = ("overview", "batches", "devices", "reductions", "placement", "compile")
"""Pages that show the same to all who follow a run, as long as they chose nothing on them."""

_FRESH_SECONDS: Final = 0.09
_MOST_MESSAGES: Final = 32


class Channel:
    """What is sent to all that have one page of a run open.

    A message says all of whatever it speaks of, so a page may get one again that
    it knows already.

    Attributes:
      number: of the newest message; they are counted from 1.
    """

    def __init__(self, page: str, board: Board) -> None:
        """Begins without messages.

        Args:
          page: its name.
          board: what looks for it, and for all other pages of the run.
        """
        self.number = 0
        self._view = View(page=page)
        self._board = board
        self._said: object = None
        self._messages: deque[Message[Any]] = deque(maxlen=_MOST_MESSAGES)
        self._looked = 0.0

    def look(self, folds: Folds, facts: Callable[[], Facts]) -> None:
        """Writes what changed, unless somebody just had that done.

        Args:
          folds: what is known of the run.
          facts: returns the page's texts.
        """
        now = time.monotonic()
        if now - self._looked < _FRESH_SECONDS:
            return
        self._looked = now
        board = self._board
        before = {source.id: source.data for source in board.sources}
        board.look(folds, self._view)
        board.say(facts())
        changed = [one for one in board.sources if one.data is not before.get(one.id)]
        if board.facts not in changed and board.facts.data is not self._said:
            changed.append(board.facts)
        self._said = board.facts.data
        if changed:
            self._messages.append(_message(changed))
            self.number += 1

    def since(self, number: int) -> list[Message[Any]] | None:
        """Returns the messages after one, None when some of them are not kept."""
        missing = self.number - number
        if missing > len(self._messages):
            return None
        return list(self._messages)[len(self._messages) - missing :]


class Broadcast:
    """The channels of a run. There is one for a page when two or more have it open."""

    def __init__(self) -> None:
        """Begins with nobody."""
        self._listeners: WeakKeyDictionary[object, str] = WeakKeyDictionary()
        self._channels: dict[str, Channel] = {}
        self._board: Board | None = None

    def channel(self, listener: object, page: str | None) -> Channel | None:
        """Notes what somebody looks at.

        Args:
          listener: who.
          page: the page, None when it is not one of `PAGES` as all see it.

        Returns:
          The page's channel, None when nobody else needs one.
        """
        if page is None:
            self._listeners.pop(listener, None)
            return None
        self._listeners[listener] = page
        if Counter(self._listeners.values())[page] < 2:
            return None
        if self._board is None:
            self._board = Board()
        if page not in self._channels:
            self._channels[page] = Channel(page, self._board)
        return self._channels[page]


def broadcast_of(feed: Feed) -> Broadcast:
    """Returns the broadcast of a run."""
    return _broadcasts.setdefault(feed, Broadcast())


_broadcasts: WeakKeyDictionary[Feed, Broadcast] = WeakKeyDictionary()


def _message(sources: list[ColumnDataSource]) -> Message[Any]:
    """Writes the new data of sources. Models have the same ids on all boards: it fits them all."""
    events = [data_patch(source) for source in sources]
    return patch_doc(patch_doc.create_header(), {}, {"events": events})
