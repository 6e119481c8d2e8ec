"""The work that every peer does: the same data, the same sizes, the same timing. NumPy only."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 512
CNN_BATCH = 256
BATCHES = 117
PARTIAL_ROWS = 60_037
"""117 whole batches, and a last one of 133 examples."""
EPOCHS = 2
STEPS = 10
"""The steps of a dispatch that takes several."""
LEARNING_RATE = 0.1
PIXELS = 784
SIDE = 28
GROUPS = 5
LEAST_CALLS = 3

Images = NDArray[np.uint8]
Labels = NDArray[np.int32]
Weights = list[NDArray[np.float32]]


def data(rows: int = BATCH * BATCHES) -> tuple[Images, Labels]:
    """Makes images from ten noisy class templates, with 10 % of the labels wrong."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, rows).astype(np.int32)
    templates = rng.integers(0, 64, (10, PIXELS)).astype(np.uint8)
    images = rng.integers(0, 192, (rows, PIXELS), dtype=np.uint8) + templates[labels]
    wrong = rng.random(rows) < 0.1
    labels[wrong] = rng.integers(0, 10, int(wrong.sum()))
    return images, labels


def scaled(images: Images) -> NDArray[np.float32]:
    """Returns pixels from -0.5 to 0.5."""
    return images.astype(np.float32) / np.float32(255) - np.float32(0.5)


def float_batches(size: int, *, square: bool) -> list[tuple[NDArray[np.float32], Labels]]:
    """Returns four batches, of images `(size, 784)` or `(size, 28, 28, 1)`."""
    images, labels = data(4 * size)
    pixels = scaled(images)
    if square:
        pixels = pixels.reshape(-1, SIDE, SIDE, 1)
    return list(zip(np.split(pixels, 4), np.split(labels, 4), strict=True))


def shuffled(images: Images, labels: Labels, seed: int) -> Iterator[tuple[Images, Labels]]:
    """Gives an epoch of batches in a random order, the last one partial when it must be."""
    order = np.random.default_rng(seed).permutation(len(images))
    for at in range(0, len(order), BATCH):
        chosen = order[at : at + BATCH]
        yield images[chosen], labels[chosen]


def initial_mlp() -> Weights:
    """Returns the parameters of a 784-256-256-10 perceptron."""
    rng = np.random.default_rng(1)
    values = []
    for inputs, outputs in ((PIXELS, 256), (256, 256), (256, 10)):
        weights = rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        values += [weights.astype(np.float32), np.zeros(outputs, np.float32)]
    return values


def initial_cnn() -> Weights:
    """Returns the parameters of two 3x3 convolutions (16, 32 channels) and a dense layer."""
    rng = np.random.default_rng(1)
    features = SIDE * SIDE // 4 * 32
    values = []
    for shape, inputs in (((3, 3, 1, 16), 9), ((3, 3, 16, 32), 144), ((features, 10), features)):
        weights = rng.standard_normal(shape) * np.sqrt(2 / inputs)
        values += [weights.astype(np.float32), np.zeros(shape[-1], np.float32)]
    return values


def seconds_per_call(
    calls: Callable[[int], Any], seconds: float, *, least: int = LEAST_CALLS
) -> float:
    """Returns the seconds of a call that leaves nothing pending: a median of five groups."""
    calls(1)
    start = time.perf_counter()
    calls(least)
    once = (time.perf_counter() - start) / least
    count = max(least, int(seconds / GROUPS / once))
    times = []
    for _ in range(GROUPS):
        start = time.perf_counter()
        calls(count)
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


class Peer:
    """The tasks with other sizes or models; each task returns the seconds of a call, or a step."""

    mlp: Any
    cnn: Any

    def train(self, model: Any, start: Weights, batches: Any, seconds: float) -> float:
        """Trains on four batches in turn."""
        raise NotImplementedError

    def reduce(self, size: int, seconds: float) -> float:
        """Adds up so many bytes of each replica."""
        raise NotImplementedError

    def train_mlp(self, seconds: float) -> float:
        return self.train(self.mlp, initial_mlp(), float_batches(BATCH, square=False), seconds)

    def train_cnn(self, seconds: float) -> float:
        return self.train(self.cnn, initial_cnn(), float_batches(CNN_BATCH, square=True), seconds)

    def reduce_1kb(self, seconds: float) -> float:
        return self.reduce(1 << 10, seconds)

    def reduce_1mb(self, seconds: float) -> float:
        return self.reduce(1 << 20, seconds)

    def reduce_64mb(self, seconds: float) -> float:
        return self.reduce(64 << 20, seconds)
