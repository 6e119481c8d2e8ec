"""The order of closures whose messages overtake one another."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from distlab.integrations.dask.turns import Order, Turns


@pytest.mark.parametrize("arrival", list(itertools.permutations(range(4))))
def test_closures_come_in_the_order_in_which_they_were_given(arrival: tuple[int, ...]) -> None:
    came: list[int] = []

    async def give() -> None:
        turns = Turns()

        async def one(number: int) -> None:
            await turns.wait(Order(number, list(range(number))))
            came.append(number)

        await asyncio.gather(*map(one, arrival))

    asyncio.run(asyncio.wait_for(give(), 60))
    assert came == [0, 1, 2, 3]


def test_closures_whose_answers_came_are_not_waited_for() -> None:
    async def give() -> None:
        turns = Turns()
        for order in (Order(7, []), Order(9, [7]), Order(12, [9]), Order(13, [])):
            await turns.wait(order)

    asyncio.run(asyncio.wait_for(give(), 60))
