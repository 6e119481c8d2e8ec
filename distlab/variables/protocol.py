"""The protocol of a variable for its frames, copies and events."""

from __future__ import annotations

from typing import Any, Protocol

import jax

from distlab.context.host import Host
from distlab.variables.kinds import VariableAggregation
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.storage import Storage


class StoredVariable(Protocol):
    """A named value of fixed shape and dtype in a storage."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    trainable: bool
    aggregation: VariableAggregation
    on_read: bool
    storage: Storage | RemoteStorage
    strategy: Host

    @property
    def values(self) -> tuple[Any, ...]:
        """The copies in replica order."""

    def value(self) -> jax.Array:
        """Returns the value of this replica; outside of a replica function, the common value."""

    def require_own_strategy(self, verb: str) -> None:
        """Checks that no other strategy is in scope, or runs the caller on its replicas."""

    def checked(self, value: Any, verb: str) -> jax.Array:
        """Returns a value as an array that can be assigned."""

    def __hash__(self) -> int:
        """Distinguishes variables by identity."""
