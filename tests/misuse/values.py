"""Values that most arguments of most verbs must refuse, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

import distlab as dl
from tests.misuse.world import World


class Thing:
    """An object that nothing knows."""


class Mute:
    """An object that can't be shown."""

    def __repr__(self) -> str:
        raise ValueError("no text")


def _generator() -> Iterator[int]:
    yield 1


def _deleted(_: World) -> jax.Array:
    array = jnp.ones(2) + 0
    array.delete()
    return array


def _donated(w: World) -> dl.PerReplica:
    options = dl.RunOptions(donate_argnums=0)
    given: dl.PerReplica = w.strategy.run(lambda: jnp.ones(2))
    w.strategy.run(_doubled, args=(given,), options=options)
    assert given.stacked.is_deleted()
    return given


def _doubled(x: jax.Array) -> jax.Array:
    return x * 2


def _of_other(w: World) -> Any:
    make = w.other().experimental_distribute_values_from_function
    return make(lambda c: jnp.ones(2) * c.replica_id_in_sync_group)


def _variable_of_other(w: World) -> dl.Variable:
    with w.other().scope():
        return dl.Variable(jnp.array([1.0, 2.0]), name="elsewhere")


def _leaked(_: World) -> Any:
    kept: list[Any] = []
    jax.jit(kept.append)(jnp.ones(2))
    return kept[0]


VALUES: Final[dict[str, Callable[[World], Any]]] = {
    "none": lambda _: None,
    "text": lambda _: "abc",
    "bytes": lambda _: b"x",
    "thing": lambda _: Thing(),
    "mute": lambda _: Mute(),
    "type": lambda _: int,
    "function": lambda _: lambda: 1,
    "negative": lambda _: -1,
    "big": lambda _: 2**70,
    "huge": lambda _: 10**5000,
    "fraction": lambda _: 1.5,
    "nan": lambda _: float("nan"),
    "complex": lambda _: 1j,
    "true": lambda _: True,
    "date": lambda _: np.datetime64("2020"),
    "list": lambda _: [1, 2],
    "empty_list": lambda _: [],
    "empty_tuple": lambda _: (),
    "uneven_list": lambda _: [[1], [1, 2]],
    "dict": lambda _: {"a": 1},
    "set": lambda _: {1, 2},
    "generator": lambda _: _generator(),
    "things": lambda _: np.array([Thing()], object),
    "texts": lambda _: np.array(["a"]),
    "scalar_array": lambda _: jnp.float32(1),
    "key": lambda _: jax.random.key(0),
    "per_replica": lambda w: w.x,
    "variable": lambda w: w.weights,
    "of_other": _of_other,
    "variable_of_other": _variable_of_other,
    "deleted": _deleted,
    "donated": _donated,
    "leaked": _leaked,
    "strategy": lambda w: w.strategy,
    "dataset": lambda _: dl.data.Dataset.range(3),
}
