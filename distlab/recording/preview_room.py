"""The room that pictures of examples take in a run file."""

from __future__ import annotations

from typing import Final, final

from distlab.events import Event, Preview, Unknown

_MOST_BYTES: Final = 6 << 20
_LEAST_BYTES: Final = 4 << 10


@final
class PreviewRoom:
    """Gives each dataset half of the room that is left: a program may make one each epoch."""

    def __init__(self) -> None:
        self._left = _MOST_BYTES
        self._of_dataset: dict[int, int] = {}

    def admits(self, event: Event | Unknown) -> bool:
        """Returns whether there is room for an event, as there is for all but previews."""
        if not isinstance(event, Preview):
            return True
        size = len(event.data) + len(event.indices)
        room = self._of_dataset.setdefault(event.dataset, max(_LEAST_BYTES, self._left // 2))
        if size > room:
            return False
        self._of_dataset[event.dataset] = room - size
        self._left = max(self._left - size, 0)
        return True
