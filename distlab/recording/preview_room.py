"""The room that pictures of examples take in a run file."""

from __future__ import annotations

from typing import Final, final

from distlab.events import Event, Preview, Sharding, Unknown

_MOST_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 4 << 10


@final
class PreviewRoom:
    """Gives the datasets of a line half of the room that is left: one may be made each epoch.

    A dataset's first pictures have room of their own.
    """

    def __init__(self) -> None:
        self._left = _MOST_BYTES
        self._lines: dict[int, str] = {}
        self._of_line: dict[str, int] = {}
        self._of_dataset: dict[int, int] = {}

    def admits(self, event: Event | Unknown) -> bool:
        """Returns whether there is room for an event, as there is for all but previews."""
        if isinstance(event, Sharding) and event.dataset not in self._lines:
            self._lines[event.dataset] = event.source
        if not isinstance(event, Preview):
            return True
        line, size = self._lines.get(event.dataset, ""), len(event.data) + len(event.indices)
        shared = self._of_line.setdefault(line, self._left // 2)
        own = self._of_dataset.setdefault(event.dataset, _LEAST_BYTES)
        if size <= shared:
            self._of_line[line] = shared - size
            self._left -= size
        elif size > own:
            return False
        self._of_dataset[event.dataset] = own - size
        return True
