"""Names of metrics as MLflow takes them."""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 250
_NOT_TAKEN: Final = re.compile(r"[^\w\-. :/]")


class MetricNames:
    """Gives each name one that MLflow takes, and that no other has.

    MLflow takes letters, digits, `_ - . : /` and spaces, and no name that would lead out of a
    folder.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """Returns the name for MLflow: the same where it takes it."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = self._free(_taken_name(name))
            self._taken.add(known)
        return known

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._taken:
            number += 1
            ending = f"_{number}"
            free = name[: _LONGEST - len(ending)] + ending
        return free


def _taken_name(name: str) -> str:
    parts = [part for part in _NOT_TAKEN.sub("_", name).split("/") if part]
    plain = "/".join("_" * len(part) if part in {".", ".."} else part for part in parts)
    return plain[:_LONGEST].rstrip("/") or "_"
