"""Frees the memory of the empty lists and dictionaries that Bokeh makes for each model."""

from __future__ import annotations

from typing import Final

from bokeh.document import Document

from distlab.charts.bokeh_internals import count_defaults, drop_empty_defaults

_LONGEST_PAUSE: Final = 512
"""Updates, of which there are eight a second."""


class DocumentTrimmer:
    """Drops the containers that a document's models hold for properties never set.

    Whenever Bokeh walks through a document's models, to send it or to find new ones, it
    makes a list, set or dictionary for each property that could hold one: some 1,600
    for the Overview, two thirds of an open page's memory on the server. Bokeh makes
    them again on demand.
    """

    def __init__(self, document: Document) -> None:
        self._document = document
        self._held = (0, 0)
        self._pause = self._left = 0

    def update(self) -> None:
        """Drops new containers; the session calls this eight times a second.

        Counting takes time as well, and new containers only come when a page is sent or
        gets charts: each count without a change doubles the pause, up to a minute.
        """
        self._left -= 1
        if self._left > 0 and len(self._document.models) == self._held[0]:
            return
        if self._count() == self._held:
            self._pause = self._left = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            self.trim()

    def trim(self) -> None:
        """Drops all of them now."""
        drop_empty_defaults(self._document.models)
        self._held = self._count()
        self._pause = self._left = 1

    def _count(self) -> tuple[int, int]:
        """Returns how many models there are, and how many defaults they hold."""
        models = list(self._document.models)
        return len(models), count_defaults(models)
