"""The order of the closures that a worker was given, whose messages may overtake one another."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, final


class Order(NamedTuple):
    """When a closure was given.

    Attributes:
      number: Its number; later ones have larger ones.
      after: The closures of the same worker that were not answered then.
    """

    number: int
    after: list[int]


@final
class Turns:
    """Has closures come in the order in which they were given. It lives in one event loop."""

    def __init__(self) -> None:
        self._come: set[int] = set()
        self._awaited: dict[int, list[asyncio.Future[None]]] = {}

    async def wait(self, order: Order) -> None:
        """Waits until those closures have come that were given before one."""
        number, after = order
        for other in after:
            if other not in self._come:
                come = asyncio.get_running_loop().create_future()
                self._awaited.setdefault(other, []).append(come)
                await come
        self._come = {*after, number}  # whoever comes later was given after some of these
        for come in self._awaited.pop(number, ()):
            if not come.done():
                come.set_result(None)
