"""Gives back the memory of the empty lists and dictionaries that Bokeh makes for each model."""

from __future__ import annotations

from typing import Final

from bokeh.core.property.wrappers import PropertyValueContainer
from bokeh.document import Document

_LONGEST_PAUSE: Final = 512
"""Looks, eight of which are a second."""


class EmptyDefaults:
    """Drops what models hold of properties that nobody set.

    Whenever Bokeh looks through a document's models, to send it or to see which
    are new, it makes a list, set or dictionary for each property that could hold
    one: some 1,600 for the Overview, two thirds of what an open page takes on the
    server. They are made again when they are asked for.
    """

    def __init__(self, document: Document) -> None:
        """Takes the document of an open page."""
        self._document = document
        self._held = (0, 0)
        self._pause = self._left = 0

    def look(self) -> None:
        """Drops them when there are new ones; the session calls this eight times a second.

        Looking takes time, too, and new ones come when a page is sent or gets charts:
        after each look that finds none there is a longer pause, of up to a minute.
        """
        self._left -= 1
        if self._left > 0 and len(self._document.models) == self._held[0]:
            return
        if self._counted() == self._held:
            self._pause = self._left = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self.drop()

    def drop(self) -> None:
        """Drops them now."""
        for model in self._document.models:
            # Defaults that are models stay: the page knows them by their ids.
            model._unstable_default_values = {
                name: value
                for name, value in model._unstable_default_values.items()
                if value or not isinstance(value, PropertyValueContainer)
            }
        self._held = self._counted()
        self._pause = self._left = 1

    def _counted(self) -> tuple[int, int]:
        """Returns how many models there are, and how many defaults they hold."""
        models = list(self._document.models)
        return len(models), sum(len(model._unstable_default_values) for model in models)
