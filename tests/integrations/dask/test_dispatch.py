"""Closures that are given to workers in other processes."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

from distlab.errors import ServerLostError
from distlab.integrations.dask.dispatch import Dispatch
from distlab.integrations.dask.members import Presence


def test_a_lost_server_ends_a_call_that_goes_on_when_cancelled() -> None:
    asyncio.run(_lose_a_server())


async def _lose_a_server() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    queue = mock.MagicMock(closed=False, finished=lambda *_: ended.set())
    queue.__len__.return_value = 1
    queue.take_now.side_effect = [closure := mock.MagicMock(), *[None] * 100]
    closure.sent.nbytes = closure.sent.function.number = 0

    async def stubborn(**_: Any) -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):  # as Dask does while it connects
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def present(_: Any) -> Presence:
        return Presence("tcp://127.0.0.1:1", None)

    worker = SimpleNamespace(distlab_open=mock.AsyncMock(), distlab_run=stubborn)
    members: Any = SimpleNamespace(present=present)
    pool: Any = lambda _: worker  # noqa: E731
    dispatch = Dispatch("session", pool, members, mock.MagicMock(), {"workers": 1})
    running = asyncio.create_task(dispatch.run(queue, 1))
    await asyncio.wait_for(begun.wait(), 60)
    dispatch.fail(ServerLostError("Parameter server 1 is gone."))
    await asyncio.wait_for(ended.wait(), 60)
    (error,) = closure.result.fail.call_args.args
    assert isinstance(error, ServerLostError)
    queue.closed = True
    dispatch.wake()
    await asyncio.wait_for(running, 60)
