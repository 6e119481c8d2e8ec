"""Results that are no arrays: each call has its own, and none hides what was computed."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import threading
from collections import ChainMap, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import StructureError
from tests.misuse.world import has_remedy


@dataclasses.dataclass
class Log:
    """No pytree."""

    lines: Any = None

    def read(self) -> Any:
        """Reads it."""
        return self.lines


class Named:
    """Has a hash, and holds more than that tells."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name


@pytest.fixture
def two() -> dl.MirroredStrategy:
    """A strategy of two replicas."""
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def of_objects(*parts: Any) -> np.ndarray:
    made = np.empty(len(parts), object)
    for number, part in enumerate(parts):
        made[number] = part
    return made


HIDDEN: Final[dict[str, Callable[[Any], Any]]] = {
    "values of a dict": lambda x: {"loss": x}.values(),
    "items of a dict": lambda x: {"loss": x}.items(),
    "slice": lambda x: slice(0, x),
    "partial": lambda x: functools.partial(max, x),
    "closure": lambda x: lambda: x,
    "default": lambda x: lambda loss=x: loss,
    "method": lambda x: Log(x).read,
    "array of objects": of_objects,
    "deque": lambda x: deque([x]),
    "namespace": lambda x: SimpleNamespace(loss=x),
    "chain of maps": lambda x: ChainMap({"loss": x}),
    "dataclass": lambda x: Log({"losses": [x]}),
    "iterator inside": lambda x: Log(zip([x], "a", strict=True)),
    "generator inside": lambda x: Log(part for part in [x]),
    "object with a hash": lambda x: Named("loss", x),
    "object declared the same": lambda x: Log(dl.Mirrored(x)),
    "object of a merge_call": lambda x: dl.get_replica_context().merge_call(
        lambda _, loss: Log(loss), (x,)
    ),
}

ITERATORS: Final[dict[str, Callable[[Any], Any]]] = {
    "zip": lambda x: zip([x], "a", strict=True),
    "zip of nothing computed": lambda _: zip([1], "a", strict=True),
    "map": lambda x: map(str, [x]),
    "generator": lambda x: (part for part in [x]),
    "enumerate": lambda x: enumerate([x]),
    "reversed": lambda x: reversed([x]),
    "cycle": lambda x: itertools.cycle([x]),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_an_object_that_hides_what_was_computed_is_refused(
    two: dl.MirroredStrategy, name: str
) -> None:
    with pytest.raises(StructureError, match=r"result\[1\] is of class .* is computed") as refused:
        two.run(lambda x: (x, HIDDEN[name](x * 2)), (1.0,))
    assert has_remedy(str(refused.value))


@pytest.mark.parametrize("name", ITERATORS)
def test_an_iterator_is_refused(two: dl.MirroredStrategy, name: str) -> None:
    with pytest.raises(StructureError, match=r"result\[1\] is of class .* once,") as refused:
        two.run(lambda x: (x, ITERATORS[name](x * 2)), (1.0,))
    assert has_remedy(str(refused.value))


def test_objects_without_anything_computed_are_returned(two: dl.MirroredStrategy) -> None:
    made = Log(two)
    kept: list[Any] = [of_objects, len, made.read, Log, np, two, jnp.float32]
    for value in kept:
        assert two.run(lambda value=value: value) == value
    assert two.run(lambda: slice(0, 2)) == slice(0, 2)
    assert two.run(lambda: functools.partial(max, 2))(1) == 2


MADE: Final[dict[str, tuple[Callable[[], Any], Callable[[Any], object]]]] = {
    "set": (lambda: {"a"}, lambda made: made.add("b")),
    "bytearray": (lambda: bytearray(b"a"), lambda made: made.append(1)),
    "array of objects": (lambda: of_objects([1]), lambda made: made[0].append(2)),
    "array of texts": (lambda: np.array(["a"]), lambda made: made.fill("b")),
    "deque": (lambda: deque([1]), lambda made: made.append(2)),
    "dataclass": (lambda: Log([]), lambda made: made.lines.append(1)),
    "nested": (lambda: Log({"a": Log([])}), lambda made: made.lines["a"].lines.append(1)),
}


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("name", MADE)
def test_what_a_caller_changes_is_in_no_later_result(name: str, eagerly: bool) -> None:
    make, change = MADE[name]
    options = dl.RunOptions(run_eagerly=eagerly)
    for strategy in (dl.MirroredStrategy(["CPU:0", "CPU:1"]), dl.OneDeviceStrategy("CPU:0")):

        def step(x: Any) -> Any:
            return x * 2, make()

        def made(strategy: dl.Strategy = strategy, step: Any = step) -> Any:
            loss, first = strategy.run(step, (1.0,), options=options)
            assert float(strategy.reduce("MEAN", loss, axis=None)) == 2.0
            return strategy.experimental_local_results(first)[0]

        results = [made()]
        for _ in range(2):
            change(results[-1])
            results.append(made())
            assert str(results[-1]) == str(make())
        assert len({id(one) for one in results}) == 3


@pytest.mark.parametrize("eagerly", [False, True])
def test_what_something_else_holds_is_that_one_object(eagerly: bool) -> None:
    one = dl.OneDeviceStrategy("CPU:0")
    lines: list[int] = []
    words, texts = {"a"}, np.array(["a", "b"])
    config = Log(lines)

    def step(given: Any) -> dict[str, Any]:
        made = Log(words)
        return {
            "words": words,
            "view": texts[:1],
            "config": given,
            "log": Log(lines),
            "twice": [made, made],
        }

    results = [
        one.run(step, (config,), options=dl.RunOptions(run_eagerly=eagerly)) for _ in range(2)
    ]
    for result in results:
        assert result["words"] is words
        assert result["view"].base is texts
        assert result["config"] is config
        assert result["log"].lines is lines
        first, second = result["twice"]
        assert first is second
        assert first.lines is words
    assert results[0]["log"] is not results[1]["log"]


def test_an_object_that_holds_itself_or_a_lock_is_returned(two: dl.MirroredStrategy) -> None:
    def step() -> Any:
        own = Log()
        own.lines = [own]
        return own, Log(threading.Lock())

    (own, locked), (again, same) = two.run(step), two.run(step)
    assert own.lines[0] is own
    assert again.lines[0] is again
    assert own is not again
    assert locked is same  # nobody can copy a lock
