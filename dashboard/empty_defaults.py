"""Gives back the memory of the empty lists and dictionaries that Bokeh makes for each model."""

from __future__ import annotations

from typing import Final

from bokeh.core.property.wrappers import PropertyValueContainer
from bokeh.document import Document

PERIOD_MS: Final = 500
"""Milliseconds between two looks at a page's models."""


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
        self._held = 0

    def drop(self) -> None:
        """Drops them, if there are more than the last time left."""
        models = list(self._document.models)
        if sum(len(model._unstable_default_values) for model in models) == self._held:
            return
        for model in models:
            # Defaults that are models stay: the page knows them by their ids.
            model._unstable_default_values = {
                name: value
                for name, value in model._unstable_default_values.items()
                if value or not isinstance(value, PropertyValueContainer)
            }
        self._held = sum(len(model._unstable_default_values) for model in models)
