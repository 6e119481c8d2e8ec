"""The same training with Keras 3 on JAX: `model.fit` under `keras.distribution.DataParallel`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"

import jax

from tests.bench import work


class WithKeras(work.Peer):
    """The tasks that Keras has an answer to; it has no reduce, nor partial batches on devices."""

    mlp = "mlp"
    cnn = "cnn"

    def __init__(self, replicas: int) -> None:
        # Without enough threads, fit deadlocks CPU devices.
        os.environ["PJRT_NPROC"] = str(max(2 * replicas, os.cpu_count() or 1))
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", replicas)
        import keras

        self.keras = keras
        devices = keras.distribution.list_devices("cpu")[:replicas]
        self.distribution = keras.distribution.DataParallel(
            devices=devices, auto_shard_dataset=False
        )
        keras.distribution.set_distribution(self.distribution)

    def _model(self, kind: str, dtype: str = "float32") -> Any:
        layers = self.keras.layers
        scale = [layers.Rescaling(1 / 255, -0.5)] if dtype == "uint8" else []
        if kind == "mlp":
            stack = [self.keras.Input((work.PIXELS,), dtype=dtype), *scale]
            stack += [layers.Dense(256, "relu"), layers.Dense(256, "relu"), layers.Dense(10)]
        else:
            stack = [self.keras.Input((work.SIDE, work.SIDE, 1), dtype=dtype), *scale]
            stack += [
                layers.Conv2D(16, 3, 1, "same", activation="relu"),
                layers.Conv2D(32, 3, 2, "same", activation="relu"),
                layers.Flatten(),
                layers.Dense(10),
            ]
        model = self.keras.Sequential(stack)
        model.compile(
            optimizer=self.keras.optimizers.SGD(work.LEARNING_RATE),
            loss=self.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    def train(self, kind: str, start: Any, arrays: Any, seconds: float) -> float:
        model = self._model(kind)
        model.set_weights(start)
        batches = [tuple(self._placed(v) for v in batch) for batch in arrays]

        def endless() -> Iterator[Any]:
            while True:
                yield from batches

        def calls(count: int) -> None:
            model.fit(endless(), steps_per_epoch=count, epochs=1, verbose=0)

        return work.seconds_per_call(calls, seconds, least=20)

    def _placed(self, array: Any) -> Any:
        layout = self.distribution.get_data_layout(array.shape)
        return jax.device_put(array, layout.backend_layout)

    def end_to_end(self, seconds: float) -> float:
        images, labels = work.data()
        model = self._model("mlp", "uint8")

        def calls(count: int) -> None:
            for _ in range(count):
                model.set_weights(work.initial_mlp())
                model.fit(images, labels, batch_size=work.BATCH, epochs=work.EPOCHS, verbose=0)

        return work.seconds_per_call(calls, seconds, least=1)
