"""A step that draws from a generator of NumPy or Python is told that it draws once."""

from __future__ import annotations

import functools
import random
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.random import standard_normal

import distlab as dl
from distlab.errors import DrawnOnceWarning

rng = np.random.default_rng(0)
old = np.random.RandomState(0)


class Augmentation:
    """An object with generators of its own."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.python = random.Random(0)

    def noisy(self, x: jax.Array) -> jax.Array:
        return x + self.rng.normal()

    def step(self, x: jax.Array) -> jax.Array:
        return self.noisy(x)

    def __call__(self, x: jax.Array) -> jax.Array:
        return x + self.python.random()


augmentation = Augmentation()


def noisy(x: jax.Array) -> jax.Array:
    return x + np.random.normal()  # noqa: NPY002 - as users write


def draw(x: jax.Array) -> jax.Array:
    return x + rng.normal()


def bound(generator: np.random.Generator, x: jax.Array) -> jax.Array:
    return x + generator.normal()


@jax.jit
def noisier(x: jax.Array) -> jax.Array:
    return x + rng.normal()


def with_noise(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(fn)
    def noised(x: Any) -> Any:
        return fn(x) + rng.normal()

    return noised


@with_noise
def decorated(x: jax.Array) -> jax.Array:
    return x


DRAW: list[tuple[str, Callable[[Any], Any]]] = [
    ("rng", draw),
    ("old", lambda x: x + old.rand()),
    ("np.random.rand", lambda x: x + np.random.rand()),  # noqa: NPY002
    ("standard_normal", lambda x: x + standard_normal()),  # noqa: NPY002
    ("random.random", lambda x: sum(x + random.random() for _ in range(2))),
    ("np.random.normal", lambda x: jax.tree.map(noisy, [x])[0]),
    ("self.rng", augmentation.step),
    ("self.rng", lambda x: augmentation.noisy(x)),  # noqa: PLW0108 - reached by a name
    ("self.python", augmentation),
    ("rng", lambda x: noisier(2 * x)),
    ("rng", decorated),
    ("argument 0", functools.partial(bound, np.random.default_rng(0))),
    ("generator", jax.jit(lambda x, generator=rng: x + generator.normal())),
]


@pytest.fixture
def strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.mark.parametrize(("name", "fn"), DRAW)
def test_a_step_that_draws_is_warned_of_by_the_name_of_the_generator(
    name: str, fn: Callable[[Any], Any], strategy: dl.MirroredStrategy
) -> None:
    with pytest.warns(
        DrawnOnceWarning, match=f"draws from {re.escape(name)} while it is compiled"
    ) as told:
        first = strategy.run(fn, args=(jnp.zeros(2),))
    assert told[0].filename == __file__
    second = strategy.run(fn, args=(jnp.zeros(2),))  # not told of again
    assert len({float(x[0]) for pair in (first, second) for x in pair.values}) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + (rng is None),
        lambda x: x + np.random.default_rng(0).normal(),
        lambda x: x + jax.random.normal(jax.random.key(0)),
        lambda x: x + random.SystemRandom().random(),
    ],
)
def test_a_step_that_leaves_the_generators_of_others_alone_is_not_warned_of(
    fn: Callable[[Any], Any], strategy: dl.MirroredStrategy
) -> None:
    strategy.run(fn, args=(jnp.zeros(2),))  # warnings are errors


def test_numbers_for_a_variable_that_the_first_trace_makes_are_drawn_without_a_word(
    strategy: dl.MirroredStrategy,
) -> None:
    made: list[dl.Variable] = []

    def step(x: Any) -> Any:
        if not made:
            made.append(dl.Variable(rng.normal(size=2)))
        return x + made[0]

    with strategy.scope():
        strategy.run(step, args=(jnp.zeros(2),))
    assert made[0].shape == (2,)


@pytest.fixture
def eagerly() -> Iterator[None]:
    dl.run_functions_eagerly(True)
    yield
    dl.run_functions_eagerly(False)


@pytest.mark.usefixtures("eagerly")
def test_a_function_that_runs_as_ordinary_python_draws_at_each_step(
    strategy: dl.MirroredStrategy,
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, second = (strategy.run(draw, args=(jnp.zeros(1),)) for _ in range(2))
    assert len({float(x[0]) for pair in (first, second) for x in pair.values}) == 4


def test_an_error_for_the_warning_leaves_the_step_as_it_was(strategy: dl.MirroredStrategy) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with pytest.raises(DrawnOnceWarning):
                strategy.run(draw, args=(jnp.zeros(3),))
