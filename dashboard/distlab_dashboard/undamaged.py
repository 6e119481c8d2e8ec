"""What can be shown of a run whose file is damaged."""

from __future__ import annotations

from typing import Any

from distlab.folds import BatchDetail, Folds


class Undamaged(Folds):
    """The folds of a damaged run: one that can't make its columns has those of an empty run."""

    def __init__(self, folds: Folds) -> None:
        super().__init__()
        self._own = folds
        self.lost = folds.lost
        self.evidence = folds.evidence

    def columns(self, name: Any) -> Any:
        """Returns the columns of one fold, or those of a run without events."""
        try:
            return self._own.columns(name)
        except Exception:  # noqa: BLE001 - the page says that a part can't be shown
            return super().columns(name)

    def batch(self, number: int | None = None, dataset: int | None = None) -> BatchDetail | None:
        """Returns one batch, None for one that can't be shown."""
        try:
            return self._own.batch(number, dataset)
        except Exception:  # noqa: BLE001 - the page says that a part can't be shown
            return None
