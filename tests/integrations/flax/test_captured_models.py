"""A model of Flax NNX in a function of a coordinator, which another process has as a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import nnx

from distlab.integrations.dask.captured_objects import CapturedObjects


def changes(fn: Callable[[], Any]) -> list[str]:
    objects = CapturedObjects(fn)
    objects.remember((), {})
    fn()
    return objects.changes()


def test_a_model_that_a_function_trains_is_told_and_one_that_it_only_uses_is_not() -> None:
    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))

    def train() -> None:
        model.kernel[...] = jnp.ones((2, 1))

    assert changes(train) == ["model.kernel of a Linear"]
    assert changes(lambda: model(jnp.ones((1, 2)))) == []
