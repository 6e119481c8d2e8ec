"""The verbs of `Dataset` that keep elements: in memory, or in files."""

from __future__ import annotations

from distlab.data._planned import DatasetT, Planned


class StorageVerbs(Planned[DatasetT]):
    """The verbs that keep elements."""
