"""Messages as bytes, and connections that carry them."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import jax
import numpy as np
import pytest
from distributed.comm.core import Comm
from distributed.core import ConnectionPool, Server
from hypothesis import given
from hypothesis import strategies as st

from distlab.integrations.dask.channel import Channel
from distlab.integrations.dask.sockets import accepted, opened
from distlab.integrations.dask.wire import Incoming, aligned, as_pieces

SIZES = (0, 1, 63, 64, 65, 20_000, 70_000)


def message(sizes: list[int], text: str) -> Any:
    """Returns a message with buffers of some sizes."""
    return text, [pickle.PickleBuffer(np.full(size, 7, np.uint8).data) for size in sizes]


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(SIZES), max_size=3), st.sampled_from(["", "a", "b" * 70_000])
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.integers(1, 100_000), min_size=1, max_size=8),
)
def test_messages_are_found_again_in_whatever_pieces_they_come(
    messages: list[tuple[list[int], str]], pieces: list[int]
) -> None:
    sent = b"".join(bytes(piece) for each in messages for piece in as_pieces(message(*each)))
    incoming, found, begin, turn = Incoming(), [], 0, 0
    while begin < len(sent):
        room = incoming.room()
        some = sent[begin : begin + min(pieces[turn % len(pieces)], len(room))]
        room[: len(some)] = some
        found += incoming.came(len(some))
        begin, turn = begin + len(some), turn + 1
    assert [([len(buffer) for buffer in buffers], text) for text, buffers in found] == messages
    assert all(set(bytes(buffer)) <= {7} for _, buffers in found for buffer in buffers)


def test_jax_takes_what_has_come_without_a_copy() -> None:
    memory = np.frombuffer(aligned(4_096), np.float32)
    memory[:] = 1.0
    assert jax.device_put(memory).unsafe_buffer_pointer() == memory.ctypes.data


def _echo(own: Channel) -> None:
    try:
        while True:
            text, buffers = own.receive()
            own.send((text, [*map(pickle.PickleBuffer, buffers)]))
    except OSError:
        own.close()


async def _answered(address: str, sent: list[Any]) -> list[Any]:
    async def echo(comm: Comm, session: str) -> None:
        assert session == "one"
        taken, relay = await accepted(comm)
        threading.Thread(target=_echo, args=(Channel(taken),), daemon=True).start()
        if relay is not None:
            await relay

    def ask(channel: Channel) -> list[Any]:
        for each in sent:
            channel.send(each)
        answers = [channel.receive() for _ in sent]
        channel.close()
        return answers

    server = Server({"echo": echo})
    await server.listen(address)
    async with ConnectionPool() as pool:
        channel = Channel(await opened(server.address, pool, "echo", "one"), 60)
        answers = await asyncio.to_thread(ask, channel)
    await server.close()
    return answers


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "inproc://"])
def test_a_connection_of_dask_is_handed_over_or_relayed(address: str) -> None:
    sent = [message([3, 70_000], "first"), message([], "second")]
    first, second = asyncio.run(asyncio.wait_for(_answered(address, sent), 60))
    assert second == ("second", [])
    assert (first[0], [bytes(buffer) for buffer in first[1]]) == (
        "first",
        [b"\7" * 3, b"\7" * 70_000],
    )
