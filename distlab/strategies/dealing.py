"""The parameter servers on which new variables, or parts of them, lie."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, final

from distlab.variables import partitioning
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

_beside: Final[ContextVar[tuple[Variable, ...]]] = ContextVar("distlab_beside", default=())
"""The parts of the variable beside which others are made."""


@final
class Dealing:
    """Deals variables out to parameter servers in turn, in parts where there is a partitioner."""

    def __init__(self, servers: int, partitioner: Callable[..., Any] | None) -> None:
        self._turns = itertools.cycle(range(servers))
        self._partition: partitioning.Partition | None = None
        if partitioner is not None:
            partitioning.require_partitioner(partitioner)
            self._partition = partitioning.by(partitioner)

    def next_server(self) -> int:
        """Returns the number of the server for a new variable, or for a part of one."""
        for neighbour in _beside.get():
            if neighbour.parameter_server is not None:
                return neighbour.parameter_server
        return next(self._turns)

    def made(self, make: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
        """Returns a new variable; beside another one it is divided as that, as in TensorFlow."""
        neighbours = _beside.get()
        if len(neighbours) > 1:
            rows = [part.shape[0] for part in neighbours]

            def beside_its_part(number: int, own: dict[str, Any]) -> Any:
                with _all_beside((neighbours[number],)):
                    return make(own)

            return partitioning.made(
                beside_its_part,
                arguments,
                lambda shape, _: rows if shape[:1] == (sum(rows),) else [1],
            )
        if neighbours or self._partition is None:
            return make(arguments)
        return partitioning.made(lambda _, own: make(own), arguments, self._partition)

    @contextlib.contextmanager
    def beside(self, variable: Variable | ShardedVariable) -> Iterator[None]:
        """Puts the variables that are made in a block on the servers of another one."""
        parts = variable.variables if isinstance(variable, ShardedVariable) else [variable]
        with _all_beside(tuple(parts)):
            yield


@contextlib.contextmanager
def _all_beside(parts: tuple[Variable, ...]) -> Iterator[None]:
    token = _beside.set(parts)
    try:
        yield
    finally:
        _beside.reset(token)
