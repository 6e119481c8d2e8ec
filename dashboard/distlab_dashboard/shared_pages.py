"""One serialized update for all sessions that show the same page of a run."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from bokeh.document.json import PatchJson
from bokeh.models import ColumnDataSource
from bokeh.protocol.messages.patch_doc import patch_doc

from distlab.charts import data_patch
from distlab.folds import Folds
from distlab.page.board import Board
from distlab.page.view import View

PAGES: Final = ("overview", "batches", "devices", "reductions", "placement", "compile")
"""Pages that look the same to all who follow a run and chose nothing on them."""

_FRESH_SECONDS: Final = 0.09
_MOST_MESSAGES: Final = 32


class SharedPage:
    """The messages that update one page of a run in all its sessions.

    A message replaces whatever it is about as a whole, so a page may receive one twice.
    """

    def __init__(self, page: str, board: Board) -> None:
        self.number = 0
        self._view = View(page=page)
        self._board = board
        self._sent_facts: object = None
        self._messages: deque[patch_doc] = deque(maxlen=_MOST_MESSAGES)
        self._updated = 0.0

    def update(
        self,
        folds: Folds,
        facts: Callable[[], Mapping[str, object]],
        failed: Callable[[Exception], None],
    ) -> None:
        """Writes a message of what changed, unless another session just did."""
        now = time.monotonic()
        if now - self._updated < _FRESH_SECONDS:
            return
        self._updated = now
        board = self._board
        before = {source.id: source.data for source in board.sources}
        try:
            board.update(folds, self._view)
        except Exception as error:  # noqa: BLE001 - the page reports it
            failed(error)
        board.set_facts(facts())
        changed = [one for one in board.sources if one.data is not before.get(one.id)]
        if board.facts not in changed and board.facts.data is not self._sent_facts:
            changed.append(board.facts)
        self._sent_facts = board.facts.data
        if changed:
            self._messages.append(_patch(changed))
            self.number += 1

    def since(self, number: int) -> list[patch_doc] | None:
        """Returns the messages after a number, None when some of them are gone."""
        missing = self.number - number
        if missing > len(self._messages):
            return None
        return list(self._messages)[len(self._messages) - missing :]


class SharedPages:
    """The shared pages of a run. A page is shared while two or more sessions show it."""

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[object, tuple[str, bool]] = WeakKeyDictionary()
        self._pages: dict[tuple[str, bool], SharedPage] = {}
        self._board: Board | None = None

    def join(
        self, session: object, page: str | None, *, may_control: bool = True
    ) -> SharedPage | None:
        """Notes which page a session shows, with buttons or without."""
        if page is None:
            self._sessions.pop(session, None)
            return None
        key = self._sessions[session] = page, may_control
        if Counter(self._sessions.values())[key] < 2:
            return None
        if self._board is None:
            self._board = Board()
        if key not in self._pages:
            self._pages[key] = SharedPage(page, self._board)
        return self._pages[key]


def _patch(sources: Sequence[ColumnDataSource]) -> patch_doc:
    """Returns the new data of sources as a message, which fits all boards: ids are equal."""
    content = PatchJson(events=[data_patch(source) for source in sources])
    return patch_doc(patch_doc.create_header(), {}, content)
