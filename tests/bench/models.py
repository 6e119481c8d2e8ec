"""The models in JAX, for the peers that use it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from tests.bench import work

Arrays = list[jax.Array]
Model = Callable[[Arrays, jax.Array], jax.Array]


def mlp(params: Arrays, images: jax.Array) -> jax.Array:
    """Returns the logits of a batch `(n, 784)`: `(n, 10)`."""
    w1, b1, w2, b2, w3, b3 = params
    return jax.nn.relu(jax.nn.relu(scaled(images) @ w1 + b1) @ w2 + b2) @ w3 + b3


def cnn(params: Arrays, images: jax.Array) -> jax.Array:
    """Returns the logits of a batch `(n, 28, 28, 1)`: `(n, 10)`."""
    k1, c1, k2, c2, w, b = params
    hidden = jax.nn.relu(_convolved(scaled(images), k1, 1) + c1)
    hidden = jax.nn.relu(_convolved(hidden, k2, 2) + c2)
    return hidden.reshape(hidden.shape[0], -1) @ w + b


def _convolved(images: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    return jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def scaled(images: jax.Array) -> jax.Array:
    """Returns pixels from -0.5 to 0.5, if they are not that already."""
    return images.astype(jnp.float32) / 255 - 0.5 if images.dtype == jnp.uint8 else images


def losses(model: Model, params: Arrays, images: jax.Array, labels: jax.Array) -> jax.Array:
    """Returns the cross entropy of each example, `(n,)`."""
    log_probabilities = jax.nn.log_softmax(model(params, images))
    return -jnp.take_along_axis(log_probabilities, labels[:, None], axis=1)[:, 0]


def descend(params: Arrays, gradients: Arrays) -> Arrays:
    """Returns the parameters after one step of gradient descent."""
    return [p - work.LEARNING_RATE * g for p, g in zip(params, gradients, strict=True)]
