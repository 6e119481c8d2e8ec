"""Settings of JAX for a block of code hold in the functions that distlab runs there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

import distlab as dl

CONFIG: Any = jax.config
SETTINGS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[[], Any], Any]] = {
    "enable_x64": (lambda: jax.enable_x64(True), lambda: str(jnp.arange(2.0).dtype), "float64"),
    "default_prng_impl": (
        lambda: jax.default_prng_impl("rbg"),
        lambda: str(jax.random.key_impl(jax.random.key(0))),
        "rbg",
    ),
    "numpy_dtype_promotion": (
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: CONFIG.jax_numpy_dtype_promotion,
        "strict",
    ),
    "default_matmul_precision": (
        lambda: jax.default_matmul_precision("float32"),
        lambda: CONFIG.jax_default_matmul_precision,
        "float32",
    ),
}


def _all_settings() -> contextlib.ExitStack:
    stack = contextlib.ExitStack()
    for setting, _, _ in SETTINGS.values():
        stack.enter_context(setting())
    return stack


def _read() -> dict[str, Any]:
    return {name: read() for name, (_, read, _) in SETTINGS.items()}


WANTED = {name: value for name, (_, _, value) in SETTINGS.items()}


def test_settings_hold_in_steps_and_background_functions() -> None:
    strategy, seen = dl.MirroredStrategy(["CPU:0", "CPU:1"]), []

    def step() -> None:
        seen.append(_read())

    with _all_settings():
        for eagerly in (False, True):
            strategy.run(step, options=dl.RunOptions(run_eagerly=eagerly))
        running = dl.background(step)
    running.result(timeout=60)
    assert len(seen) >= 4
    assert all(one == WANTED for one in seen)
