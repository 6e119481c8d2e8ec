"""Objects whose `__getattr__` raises another error than AttributeError: they are objects as others.

The dict whose keys are attributes, `__getattr__ = dict.__getitem__`, is the one that people write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import StructureError, ValueShapeError
from tests.misuse.table import has_remedy


class AttrDict(dict[str, Any]):
    """The recipe."""

    __getattr__ = dict.__getitem__


class Slotted(dict[str, Any]):
    """It has no `__dict__` to ask for."""

    __slots__ = ()
    __getattr__ = dict.__getitem__


class Scaling:
    """Lacks the attributes of functions and arrays, and the value of one slot."""

    __slots__ = ("rate", "unset")

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __call__(self, x: Any) -> Any:
        """Scales."""
        return x * self.rate


@pytest.fixture
def two() -> dl.MirroredStrategy:
    """A strategy of two replicas."""
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.mark.parametrize("eagerly", [False, True])
@pytest.mark.parametrize("kind", [AttrDict, Slotted])
def test_a_dict_of_attributes_is_an_argument_as_other_objects(
    two: dl.MirroredStrategy, kind: Any, eagerly: bool
) -> None:
    options = dl.RunOptions(run_eagerly=eagerly)

    def scaled(config: Any, x: Any) -> Any:
        return x * config.rate

    def nested(held: Any, x: Any) -> Any:
        return scaled(held["config"], x)

    def of_two(fn: Callable[..., Any], *args: Any) -> list[float]:
        return [float(value) for value in two.run(fn, args, options=options).values]

    assert of_two(scaled, kind(rate=2.0), 3.0) == [6.0, 6.0]
    assert of_two(scaled, kind(rate=4.0), 3.0) == [12.0, 12.0]
    assert of_two(nested, {"config": kind(rate=2.0)}, 5.0) == [10.0, 10.0]
    config = kind(rate=3.0)
    assert of_two(lambda x: x * config.rate, 3.0) == [9.0, 9.0]


@pytest.mark.parametrize("eagerly", [False, True])
def test_an_object_without_attributes_is_an_argument_a_result_and_a_function(
    two: dl.MirroredStrategy, eagerly: bool
) -> None:
    options = dl.RunOptions(run_eagerly=eagerly)
    scaling = Scaling(2.0)
    assert two.run(lambda fn, x: fn(x), (scaling, 3.0), options=options).values == (6.0, 6.0)
    assert two.run(scaling, (3.0,), options=options).values == (6.0, 6.0)
    assert two.run(lambda: scaling, options=options) is scaling


def test_a_result_that_holds_what_was_computed_is_named(two: dl.MirroredStrategy) -> None:
    assert two.run(lambda: AttrDict(rate=0.5)) == {"rate": 0.5}
    with pytest.raises(StructureError, match=r"AttrDict and its \['loss'\] is computed") as refused:
        two.run(lambda x: AttrDict(loss=x * 2), (3.0,))
    assert has_remedy(str(refused.value))


def _all_reduced(strategy: dl.MirroredStrategy, value: Any) -> None:
    strategy.run(lambda: dl.get_replica_context().all_reduce("SUM", value))


VERBS: dict[str, Callable[[dl.MirroredStrategy, Any], object]] = {
    "reduce": lambda strategy, value: strategy.reduce("MEAN", value, axis=None),
    "all_reduce": _all_reduced,
    "variable": lambda _, value: dl.Variable(value, name="v"),
    "v.assign": lambda _, value: dl.Variable(jnp.ones(2), name="v").assign(value),
}


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_of_numbers_refuse_it_as_other_objects(two: dl.MirroredStrategy, verb: str) -> None:
    rule = r"got a AttrDict: .*Its class raises KeyError for the attributes that it lacks\. "
    with pytest.raises(ValueShapeError, match=rule):
        VERBS[verb](two, AttrDict(loss=1.0))
