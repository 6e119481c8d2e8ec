"""The coordinator's connection to a worker, by which closures go and results come."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, final

from distlab.integrations.dask.channel import Messages
from distlab.integrations.dask.messages import Order


@final
class ClosureLane(Messages):
    """A connection to a worker, which runs closures in the order in which they are given."""

    def __init__(self) -> None:
        super().__init__(self._answered)
        self._calls: dict[int, asyncio.Future[Any]] = {}

    @classmethod
    async def over(cls, own: socket.socket) -> ClosureLane:
        """Returns a lane over a socket."""
        own.setblocking(False)
        _, lane = await asyncio.get_running_loop().create_connection(cls, sock=own)
        return lane

    def give(self, order: Order, closure: dict[str, Any]) -> asyncio.Future[Any]:
        """Gives a closure, and returns its answer's future, which fails with the connection."""
        answer = asyncio.get_running_loop().create_future()
        if self.ended:
            answer.set_exception(ConnectionError("the connection was closed"))
        else:
            self._calls[order.number] = answer
            self.send((*order, closure))
        return answer

    def answer(self, number: int, answer: Any) -> None:
        """Answers a closure, as the worker or on its behalf."""
        call = self._calls.pop(number, None)
        if call is not None and not call.done():
            call.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails what was not answered."""
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(exc or ConnectionError("the connection was closed"))

    def _answered(self, message: Any, _: Messages) -> None:
        self.answer(*message)
