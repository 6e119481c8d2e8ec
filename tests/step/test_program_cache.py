"""The cache of programs: the functions that it keeps, and its use by several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from distlab.step.program_cache import ProgramCache


def made(number: int) -> Callable[[], int]:
    return lambda: number


def test_a_function_finds_the_programs_that_were_kept_for_it() -> None:
    cache = ProgramCache()
    first, second = made(1), made(2)
    assert cache.of(first) is cache.of(first)
    assert cache.of(first) is not cache.of(second)


def test_a_method_of_an_object_without_a_hash_is_known_by_its_object() -> None:
    @dataclass
    class Model:
        def step(self) -> None: ...

    cache, one, other = ProgramCache(), Model(), Model()
    assert cache.of(one.step) is cache.of(one.step)
    assert cache.of(one.step) is not cache.of(other.step)


def test_the_function_that_was_not_used_for_longest_goes_first() -> None:
    cache = ProgramCache()
    functions = [made(n) for n in range(257)]
    kept = [cache.of(function) for function in functions[:256]]
    assert cache.of(functions[0]) is kept[0]
    cache.of(functions[256])
    assert cache.of(functions[0]) is kept[0]
    assert cache.of(functions[1]) is not kept[1]


def test_threads_that_fill_the_cache_do_not_lose_each_others_functions() -> None:
    cache = ProgramCache()
    functions = [made(n) for n in range(300)]

    def use(order: Any) -> int:
        return sum(cache.of(functions[n]) is not None for n in order)

    orders = [range(300), range(299, -1, -1), [n * 7 % 300 for n in range(300)]] * 20
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(partial(use), orders)) == [300] * 60
