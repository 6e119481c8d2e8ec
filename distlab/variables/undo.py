"""The values of variables from before a function that assigns them directly."""

from __future__ import annotations

from typing import final

import jax

from distlab.variables.protocol import StoredVariable
from distlab.variables.storage import giving


@final
class Undo:
    """Assignments of copies of variables that are put back where the function fails."""

    def __init__(self) -> None:
        self._before: dict[StoredVariable, jax.Array] = {}
        self._over = False

    def keep(self, variable: StoredVariable, array: jax.Array) -> None:
        """Keeps what a variable held before it was assigned, if it is the first assignment."""
        self._before.setdefault(variable, array)

    def set_copy(self, variable: StoredVariable, number: int, value: jax.Array) -> None:
        """Writes a copy."""
        with giving:
            if self._over:
                raise SystemExit
            self.keep(variable, variable.storage.array)
            variable.storage.set_copy(number, value)

    def restore(self) -> None:
        """Puts the values back, all of them whatever interrupts it; nothing is assigned later."""
        interrupt = None
        while True:
            try:
                self._restore()
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _restore(self) -> None:
        with giving:
            self._over = True
            for variable, array in self._before.items():
                variable.storage.array = array
