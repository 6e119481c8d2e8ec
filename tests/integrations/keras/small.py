"""A small model and its data, for tests of what surrounds the numbers."""

from __future__ import annotations

from typing import Any

import jax
import keras
import numpy as np
from keras import layers

import distlab as dl

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(20, 4).astype("float32")
Y = RANDOM.randint(0, 3, 20).astype("int32")
FIT: dict[str, Any] = {"batch_size": 8, "shuffle": False, "verbose": 0}


def mirrored(replicas: int) -> dl.MirroredStrategy:
    return dl.MirroredStrategy(jax.devices()[:replicas])


def model(*hidden: Any, optimizer: Any = "sgd", **compiled: Any) -> Any:
    """Makes and compiles a classifier with the same weights at each call."""
    keras.utils.set_random_seed(0)
    made = keras.Sequential(
        [keras.Input((4,)), layers.Dense(6, activation="relu"), *hidden, layers.Dense(3)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer, loss=loss, metrics=["accuracy"], **compiled)
    return made
