"""A callback that lets pages and widgets control `fit`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, final

import keras

from distlab.control.loops import PAUSE_SECONDS, controlled


@final
class Controlled(keras.callbacks.Callback):  # type: ignore[misc]
    """Lets the dashboard and notebook views pause, step, resume and stop `fit`.

    It is `dl.controlled` for Keras' loop: `fit` waits before a batch while it is paused. When it
    is stopped, `fit` ends after the present batch, as with `model.stop_training`.

    Args:
      name: The loop's name in the dashboard and in widgets.
      pause_seconds: The longest pause; then `fit` resumes by itself.

    Raises:
      ArgumentTypeError: `name` is not a string.
      ArgumentValueError: `pause_seconds` is not above 0.

    Example:
      >>> import keras
      >>> import numpy as np
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
      ...     model.compile("sgd", "mse")
      >>> x = np.ones((8, 1))
      >>> history = model.fit(x, x, verbose=0, callbacks=[dl.keras.Controlled(name="training")])
      >>> len(history.history["loss"])
      1
    """

    def __init__(self, name: str = "training", pause_seconds: float = PAUSE_SECONDS) -> None:
        super().__init__()
        self._controlled = controlled(itertools.count(), name=name, pause_seconds=pause_seconds)
        self._loop: Iterator[int] = iter(())

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins a loop, which pages list until `fit` ends."""
        del logs
        self._loop = iter(self._controlled)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Waits while the loop is paused."""
        del batch, logs
        if next(self._loop, None) is None:
            self._model.stop_training = True

    def on_train_end(self, logs: Any = None) -> None:
        """Ends the loop."""
        del logs
        self._loop.close()  # type: ignore[attr-defined]
