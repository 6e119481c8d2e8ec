"""What a function does to objects that it refers to, or is given, is found out in its process."""

from __future__ import annotations

import functools
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distlab.integrations.dask.captured_objects import CapturedObjects


class Tally:
    """A progress bar, or the like."""

    def __init__(self) -> None:
        self.n = 0
        self.losses: list[float] = []
        self._cache: dict[int, int] = {}

    def update(self) -> None:
        self.n += 1

    def log(self) -> None:
        self.losses.append(1.0)

    def square(self, x: int) -> int:
        return self._cache.setdefault(x, x * x)

    @functools.cached_property
    def size(self) -> int:
        return 3


def changes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> list[str]:
    objects = CapturedObjects(fn)
    objects.remember(args, kwargs)
    fn(*args, **kwargs)
    return objects.changes()


def test_attributes_of_a_captured_object_are_named() -> None:
    bar = Tally()

    def step() -> None:
        bar.log()
        bar.update()

    assert changes(step) == ["bar.n, bar.losses[0] of a Tally"]
    assert changes(bar.update) == ["self.n of a Tally"]
    assert changes(functools.partial(Tally.update, bar)) == [".n of a Tally"]
    assert changes(lambda: bar.n) == []


def test_what_an_object_makes_when_it_is_first_used_is_no_change() -> None:
    bar = Tally()
    assert changes(lambda: bar.square(3) + bar.size) == []


@pytest.mark.parametrize(
    ("make", "change", "told"),
    [
        (Counter, lambda c: c.update("a"), "thing['a'] of a Counter"),
        (
            lambda: defaultdict(list),
            lambda d: d["a"].append(1),
            "thing['a'], thing['a'][0] of a defaultdict",
        ),
        (deque, lambda q: q.append(1), "thing[0] of a deque"),
        (lambda: np.zeros(3), lambda a: np.add(a, 1, out=a), "thing of a ndarray"),
        (np.random.default_rng, lambda r: r.normal(size=3), "thing of a Generator"),
        (np.random.RandomState, lambda r: r.rand(), "thing of a RandomState"),
        (random.Random, lambda r: r.shuffle([1, 2, 3]), "thing of a Random"),
    ],
    ids=["counter", "defaultdict", "deque", "array", "generator", "state", "python"],
)
def test_objects_of_libraries_are_told(
    make: Callable[[], Any], change: Callable[[Any], Any], told: str
) -> None:
    thing = make()
    assert changes(lambda: change(thing)) == [told]
    assert changes(change, make()) == [told.replace("thing", "argument 0")]


def test_arguments_are_copies_too() -> None:
    def fill(into: dict[str, int], *, bar: Tally) -> None:
        into["n"] = 1
        bar.update()

    assert changes(fill, {}, bar=Tally()) == ["argument 0['n'] of a dict", "bar.n of a Tally"]


def test_objects_are_compared_less_and_less_often() -> None:
    bar = Tally()
    objects = CapturedObjects(bar.update)
    told = []
    for run in range(1, 10):
        objects.remember((), {})
        bar.update()
        if objects.changes():
            told.append(run)
    assert told == [1, 2, 4, 8]
