"""The parameter servers on which new variables, or parts of them, lie."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import jax_internals
from distlab.errors import ArgumentValueError
from distlab.text.shown import shown
from distlab.variables.conversion import as_value
from distlab.variables.sharded_variable import ShardedVariable
from distlab.variables.variable import Variable

_Make: TypeAlias = Callable[[int, dict[str, Any]], Any]
"""Makes a part of a variable, by its number and the arguments of `Variable`."""

_numbers = itertools.count()
_beside: Final[ContextVar[tuple[Variable, ...]]] = ContextVar("distlab_beside", default=())
"""The parts of the variable beside which others are made."""


@final
class Dealing:
    """Deals variables out to parameter servers in turn, in parts where there is a partitioner."""

    def __init__(self, servers: int, partitioner: Callable[..., Any] | None) -> None:
        self._turns = itertools.cycle(range(servers))
        self._partitioner = partitioner

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

            return _made(
                beside_its_part,
                arguments,
                lambda value: rows if value.shape[:1] == (sum(rows),) else [1],
            )
        if neighbours or self._partitioner is None:
            return make(arguments)
        return _made(lambda _, own: make(own), arguments, self._rows_of_parts)

    def _rows_of_parts(self, value: jax.Array) -> list[int]:
        """Returns the rows of each part by the partitioner, as TensorFlow deals them out."""
        assert self._partitioner is not None
        if not value.shape or not value.shape[0]:
            return [1]  # nothing to divide
        counts = list(self._partitioner(shape=value.shape, dtype=np.dtype(value.dtype)))
        if counts[0] < 1 or any(count != 1 for count in counts[1:]):
            raise ArgumentValueError(
                "variable_partitioner must divide the first axis alone, into at least one part, "
                f"got {shown(counts)} for the shape {list(value.shape)}. Return for example "
                f"{[2] + [1] * (value.ndim - 1)}."
            )
        return sizes(value.shape[0], min(int(counts[0]), value.shape[0]))

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


def sizes(rows: int, parts: int) -> list[int]:
    """Returns the rows of each part; where they differ by one, larger ones come first."""
    base, more = divmod(rows, parts)
    return [base + (number < more) for number in range(parts)]


def _made(
    make: _Make, arguments: dict[str, Any], partition: Callable[[jax.Array], Sequence[int]]
) -> Variable | ShardedVariable:
    """Returns a new variable, whole or in parts of so many rows."""
    value = arguments["initial_value"]
    if jax_internals.being_staged():
        return make(0, arguments)  # which says why not
    if callable(value):
        value = value()
    if not isinstance(value, jax.core.Tracer):
        value = as_value(value, arguments["dtype"], arguments["name"] or "A variable")
        rows = partition(value)
        if len(rows) > 1:
            name = arguments["name"] or f"sharded_variable_{next(_numbers)}"
            parts = [
                make(number, {**arguments, "initial_value": part, "name": f"{name}/part_{number}"})
                for number, part in enumerate(jnp.split(value, np.cumsum(rows)[:-1]))
            ]
            return ShardedVariable(parts, name)
    return make(0, {**arguments, "initial_value": value})
