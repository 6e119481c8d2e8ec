"""The event loop of a Dask client or worker, which runs in a thread of its own."""

from __future__ import annotations

import asyncio
from typing import Any


def event_loop(node: Any) -> asyncio.AbstractEventLoop:
    """Returns the event loop beneath Tornado's."""
    loop: asyncio.AbstractEventLoop = node.loop.asyncio_loop
    return loop
