"""Arguments that each use takes something from: a compiled step would take once, and refuses."""

from __future__ import annotations

import asyncio
import io
import itertools
import queue
import random
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentTypeError
from tests.misuse.table import has_remedy
from tests.misuse.world import World


class Counter:
    """An iterator of the user's."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self.taken += 1
        return self.taken


async def asynchronous() -> AsyncIterator[int]:
    yield 1


def _queue() -> queue.Queue[int]:
    made: queue.Queue[int] = queue.Queue()
    made.put(1)
    return made


USED_UP: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]]] = {
    "list iterator": (lambda: iter([1, 2]), next, "next(a)"),
    "generator": (lambda: (n for n in (1, 2)), next, "next(a)"),
    "zip": (lambda: zip([1], strict=True), next, "next(a)"),
    "count": (itertools.count, next, "next(a)"),
    "range iterator": (lambda: iter(range(3)), next, "next(a)"),
    "iterator of the user's": (Counter, next, "next(a)"),
    "iterator of a dataset": (lambda: iter(dl.data.Dataset.range(3)), next, "next(a)"),
    "file": (lambda: io.StringIO("1\n2\n"), lambda a: float(a.readline()), "Read outside"),
    "Generator": (lambda: np.random.default_rng(0), lambda a: a.normal(), "jax.random"),
    "RandomState": (lambda: np.random.RandomState(0), lambda a: a.normal(), "jax.random"),
    "Random": (lambda: random.Random(0), lambda a: a.random(), "jax.random"),
    "queue": (_queue, lambda a: a.get(), "a.get()"),
    "async generator": (asynchronous, lambda _: 1, "Await"),
}
"""How to make an object, to take from it, and what the error advises."""


@pytest.mark.parametrize("name", USED_UP)
@pytest.mark.parametrize("as_error", [True, False])
def test_a_compiled_step_refuses_what_it_would_take_from_once(
    name: str, as_error: bool, tmp_path: Path
) -> None:
    make, take, advice = USED_UP[name]
    strategy = World(tmp_path).strategy

    def step(a: Any) -> Any:
        return jnp.float32(0) + take(a)

    with warnings.catch_warnings():
        warnings.simplefilter("error" if as_error else "ignore")
        for _ in range(2):
            with pytest.raises(ArgumentTypeError, match=r"a is a \w+, from which") as refused:
                strategy.run(step, args=(make(),))
    assert advice in str(refused.value)
    assert has_remedy(str(refused.value))


def test_the_error_names_where_the_argument_is(tmp_path: Path) -> None:
    strategy = World(tmp_path).strategy
    with pytest.raises(ArgumentTypeError, match=r"next\(state\['batches'\]\)"):
        strategy.run(lambda state: state, args=({"batches": iter(range(3))},))
    with pytest.raises(ArgumentTypeError, match="b is a list_iterator"):
        strategy.run(lambda *, b: b, kwargs={"b": iter([1])})
    options = dl.RunOptions(static_argnums=0)
    with pytest.raises(ArgumentTypeError, match="rng is a Generator"):
        strategy.run(lambda rng: rng, args=(np.random.default_rng(0),), options=options)


def test_nothing_is_taken_from_what_is_refused(tmp_path: Path) -> None:
    strategy = World(tmp_path).strategy
    given = Counter()
    with pytest.raises(ArgumentTypeError):
        strategy.run(next, args=(given,))
    assert given.taken == 0


def test_ordinary_python_takes_at_each_call(tmp_path: Path) -> None:
    strategy = World(tmp_path).strategy
    eagerly = dl.RunOptions(run_eagerly=True)
    given = Counter()
    results = [strategy.run(next, args=(given,), options=eagerly) for _ in range(2)]
    assert [list(result.values) for result in results] == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize("as_error", [False, True])
def test_ordinary_python_takes_from_iterators_wherever_they_are(
    as_error: bool, tmp_path: Path
) -> None:
    strategy = World(tmp_path).strategy
    eagerly = dl.RunOptions(run_eagerly=True)
    batches = iter([np.float32(1), np.float32(2), np.float32(3), np.float32(4)])

    def step(state: Any, *, scale: Any) -> Any:
        return next(state["batches"][0]) * next(scale) * state["factor"]

    with warnings.catch_warnings():
        warnings.simplefilter("error" if as_error else "ignore")
        result = strategy.run(
            step,
            args=({"batches": (batches,), "factor": jnp.float32(10)},),
            kwargs={"scale": iter(range(1, 5))},
            options=eagerly,
        )
    assert [float(value) for value in result.values] == [10, 40, 90, 160]


def test_what_can_be_iterated_anew_is_no_iterator(tmp_path: Path) -> None:
    strategy = World(tmp_path).strategy
    assert strategy.run(sum, args=(range(4),)) == 6
    total = strategy.run(sum, args=(dl.data.Dataset.range(4),))
    assert [int(value) for value in total.values] == [6] * 4


def test_an_awaitable_is_refused(tmp_path: Path) -> None:
    async def later() -> int:
        return 1

    async def main() -> None:
        task = asyncio.ensure_future(later())
        with pytest.raises(ArgumentTypeError, match="Await it outside"):
            World(tmp_path).strategy.run(lambda a: a, args=(task,))
        assert await task == 1

    asyncio.run(main())
