"""The key-value store of the coordination service, which all processes share."""

from __future__ import annotations

import contextlib
from typing import final

import jax

from distlab.devices import jax_internals
from distlab.errors import ClusterError

_NOT_THERE = ("NOT_FOUND", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED")


@final
class KeyValues:
    """Texts by key, the same in all processes; the prefix hides another generation's."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._client = jax_internals.coordination_client()

    def set(self, key: str, text: str, *, overwrite: bool = False) -> None:
        """Stores a text."""
        try:
            self._client.key_value_set(self._prefix + key, text, allow_overwrite=overwrite)
        except jax.errors.JaxRuntimeError as error:
            raise ClusterError(
                f"The key {key!r} could not be stored for the other processes: {error}. Each key "
                "is stored once, unless overwrite is True."
            ) from error

    def awaited(self, key: str, timeout: float) -> str | None:
        """Returns a text, and waits until it is there; None when the time is over."""
        try:
            text: str = self._client.blocking_key_value_get(
                self._prefix + key, max(1, int(timeout * 1000))
            )
        except jax.errors.JaxRuntimeError as error:
            if str(error).startswith(_NOT_THERE):
                return None
            raise ClusterError(
                f"The key {key!r} could not be read from the coordination service: {error}. The "
                "chief's process may have ended."
            ) from error
        return text

    def find(self, key: str) -> str | None:
        """Returns a text; None when there is none yet."""
        try:
            text: str = self._client.key_value_try_get(self._prefix + key)
        except jax.errors.JaxRuntimeError:
            return None
        return text

    def below(self, folder: str) -> dict[str, str]:
        """Returns the texts whose keys begin with `folder/`, by the rest of their keys."""
        place = f"{self._prefix}{folder}/"
        try:
            found: list[tuple[str, str]] = self._client.key_value_dir_get(place)
        except jax.errors.JaxRuntimeError:
            return {}
        return {key.removeprefix(place): text for key, text in found}

    def delete(self, key: str) -> None:
        """Forgets a text. A key without one is left as it is."""
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            self._client.key_value_delete(self._prefix + key)
