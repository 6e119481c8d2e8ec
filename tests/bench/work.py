"""The work that every peer does: the same data, the same model, the same timing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

BATCH = 512
BATCHES = 117
LEARNING_RATE = 0.1
PIXELS = 784
GROUPS = 5
LEAST_CALLS = 3

Arrays = list[jax.Array]


def data() -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Makes images from ten noisy class templates, with 10 % of the labels wrong.

    Returns:
      Images `(59904, 784)` and labels `(59904,)`: 117 whole batches.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, BATCH * BATCHES).astype(np.int32)
    templates = rng.integers(0, 64, (10, PIXELS)).astype(np.uint8)
    images = rng.integers(0, 192, (len(labels), PIXELS), dtype=np.uint8) + templates[labels]
    wrong = rng.random(len(labels)) < 0.1
    labels[wrong] = rng.integers(0, 10, int(wrong.sum()))
    return images, labels


def float_data(batches: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Returns the first `batches` batches with pixels from -0.5 to 0.5."""
    images, labels = data()
    count = BATCH * batches
    return images[:count].astype(np.float32) / np.float32(255) - np.float32(0.5), labels[:count]


def initial() -> list[NDArray[np.float32]]:
    """Returns the parameters of a 784-256-256-10 perceptron."""
    rng = np.random.default_rng(1)
    values = []
    for inputs, outputs in ((PIXELS, 256), (256, 256), (256, 10)):
        weights = rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        values += [weights.astype(np.float32), np.zeros(outputs, np.float32)]
    return values


def mean_loss(params: Arrays, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the mean cross entropy of a batch, a scalar."""
    w1, b1, w2, b2, w3, b3 = params
    hidden = jax.nn.relu(jax.nn.relu(images @ w1 + b1) @ w2 + b2)
    log_probabilities = jax.nn.log_softmax(hidden @ w3 + b3)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=1))


def descend(params: Arrays, gradients: Arrays) -> Arrays:
    """Returns the parameters after one step of gradient descent."""
    return [p - LEARNING_RATE * g for p, g in zip(params, gradients, strict=True)]


def seconds_per_call(calls: Callable[[int], Any], seconds: float) -> float:
    """Times groups of calls made one after another.

    Args:
      calls: does the work n times and leaves nothing pending.
      seconds: about how long to measure.

    Returns:
      The median over five groups of the seconds for one call.
    """
    calls(1)
    start = time.perf_counter()
    calls(LEAST_CALLS)
    once = (time.perf_counter() - start) / LEAST_CALLS
    count = max(LEAST_CALLS, int(seconds / GROUPS / once))
    times = []
    for _ in range(GROUPS):
        start = time.perf_counter()
        calls(count)
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)
