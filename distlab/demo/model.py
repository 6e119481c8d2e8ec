"""A small convolutional network in plain JAX, without distlab."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

CLASSES = 10
SHAPES = {
    "conv1/kernel": (3, 3, 1, 32),
    "conv1/bias": (32,),
    "conv2/kernel": (3, 3, 32, 64),
    "conv2/bias": (64,),
    "dense/kernel": (4 * 4 * 64, 128),
    "dense/bias": (128,),
    "output/kernel": (128, CLASSES),
    "output/bias": (CLASSES,),
}


def initial(seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Returns initial parameters: kernels after He et al. (2015), biases zero."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, shape in SHAPES.items():
        inputs = int(np.prod(shape[:-1]))
        scale = np.sqrt(2 / inputs) if name.endswith("kernel") else 0.0
        values[name] = (scale * rng.standard_normal(shape)).astype(np.float32)
    return values


def logits(params: dict[str, jax.Array], images: jax.Array) -> jax.Array:
    """Returns a score for each of the ten digits."""
    x = images[..., None]
    x = jax.nn.relu(_convolve(x, params["conv1/kernel"], stride=1) + params["conv1/bias"])
    x = jax.nn.relu(_convolve(x, params["conv2/kernel"], stride=2) + params["conv2/bias"])
    x = x.reshape(len(images), 4 * 4 * 64)
    x = jax.nn.relu(x @ params["dense/kernel"] + params["dense/bias"])
    return x @ params["output/kernel"] + params["output/bias"]


def losses(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the cross entropy of each example, `(examples,)`."""
    log_probabilities = jax.nn.log_softmax(logits(params, images))
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]


def correct(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the number of examples that are classified correctly, a scalar float32."""
    guesses = jnp.argmax(logits(params, images), axis=1)
    return jnp.sum(guesses == labels, dtype=jnp.float32)


def _convolve(images: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
