"""The same work with tf.distribute.MirroredStrategy, compiled with tf.function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.bench import work

SUM = tf.distribute.ReduceOp.SUM


def _scaled(images: Any) -> Any:
    return tf.cast(images, tf.float32) / 255 - 0.5 if images.dtype == tf.uint8 else images


def _mlp(params: Any, images: Any) -> Any:
    w1, b1, w2, b2, w3, b3 = params
    return tf.nn.relu(tf.nn.relu(_scaled(images) @ w1 + b1) @ w2 + b2) @ w3 + b3


def _cnn(params: Any, images: Any) -> Any:
    k1, c1, k2, c2, w, b = params
    hidden = tf.nn.relu(tf.nn.conv2d(_scaled(images), k1, 1, "SAME") + c1)
    hidden = tf.nn.relu(tf.nn.conv2d(hidden, k2, 2, "SAME") + c2)
    return tf.reshape(hidden, [-1, w.shape[0]]) @ w + b


class WithTensorFlow(work.Peer):
    """The tasks with TensorFlow on logical CPU devices."""

    mlp = staticmethod(_mlp)
    cnn = staticmethod(_cnn)

    def __init__(self, replicas: int) -> None:
        (cpu,) = tf.config.list_physical_devices("CPU")
        logical = [tf.config.LogicalDeviceConfiguration()] * replicas
        tf.config.set_logical_device_configuration(cpu, logical)
        self.replicas = replicas
        self.strategy = tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(replicas)])

    def _placed(self, array: Any) -> Any:
        """Divides an array over the replicas."""
        parts = np.split(np.asarray(array), self.replicas)

        def part(context: Any) -> Any:
            number = context.replica_id_in_sync_group
            with tf.device(f"/cpu:{number}"):
                return tf.identity(tf.constant(parts[number]))

        return self.strategy.experimental_distribute_values_from_function(part)

    def _dataset(self, arrays: Any) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(arrays)
        dataset = dataset.shuffle(len(arrays[1])).batch(work.BATCH).prefetch(tf.data.AUTOTUNE)
        return self.strategy.experimental_distribute_dataset(dataset)

    def _await(self, value: Any) -> None:
        for part in self.strategy.experimental_local_results(value):
            part.numpy()

    def dispatch(self, seconds: float) -> float:
        x = self._placed(np.zeros((8 * self.replicas, 128), np.float32))

        @tf.function
        def add_one(v: Any) -> Any:
            return self.strategy.run(lambda one: one + 1, args=(v,))

        def calls(count: int) -> None:
            for _ in range(count):
                y = add_one(x)
            self._await(y)

        return work.seconds_per_call(calls, seconds)

    def dispatch_10(self, seconds: float) -> float:
        x = self._placed(np.zeros((8 * self.replicas, 128), np.float32))

        @tf.function
        def add_ten(v: Any) -> Any:
            for _ in tf.range(work.STEPS):
                v = self.strategy.run(lambda one: one + 1, args=(v,))
            return v

        def calls(count: int) -> None:
            for _ in range(count):
                y = add_ten(x)
            self._await(y)

        return work.seconds_per_call(calls, seconds) / work.STEPS

    def _step(self, model: Callable[..., Any], start: Any, batch: int) -> tuple[Any, list[Any]]:
        with self.strategy.scope():
            params = [tf.Variable(value) for value in start]

        def merge(strategy: Any, *gradients: Any) -> None:
            sums = strategy.extended.batch_reduce_to(SUM, list(zip(gradients, params, strict=True)))
            for param, total in zip(params, sums, strict=True):
                strategy.extended.update(
                    param, lambda v, g: v.assign_sub(work.LEARNING_RATE * g), args=(total,)
                )

        def one(images: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, model(params, images)
                )
                loss = tf.reduce_sum(entropy) / batch
            gradients = tape.gradient(loss, params)
            tf.distribute.get_replica_context().merge_call(merge, args=tuple(gradients))
            return loss

        @tf.function
        def step(images: Any, labels: Any) -> Any:
            losses = self.strategy.run(one, args=(images, labels))
            return self.strategy.reduce(SUM, losses, axis=None)

        return step, params

    def train_mlp_10(self, seconds: float) -> float:
        images, labels = work.float_batches(work.BATCH, square=False)[0]
        step, _ = self._step(_mlp, work.initial_mlp(), work.BATCH)
        batch = (self._placed(images), self._placed(labels))

        @tf.function
        def ten(images: Any, labels: Any) -> Any:
            loss = tf.constant(0.0)
            for _ in tf.range(work.STEPS):
                loss = step(images, labels)
            return loss

        def calls(count: int) -> None:
            for _ in range(count):
                loss = ten(*batch)
            loss.numpy()

        return work.seconds_per_call(calls, seconds) / work.STEPS

    def train(self, model: Any, start: Any, arrays: Any, seconds: float) -> float:
        step, _ = self._step(model, start, len(arrays[0][1]))
        batches = [tuple(map(self._placed, batch)) for batch in arrays]

        def calls(count: int) -> None:
            for i in range(count):
                loss = step(*batches[i % 4])
            loss.numpy()

        return work.seconds_per_call(calls, seconds)

    def feed(self, seconds: float) -> float:
        batches = self._dataset(work.data())

        def calls(count: int) -> None:
            for _ in range(count):
                for batch in batches:
                    _ = self.strategy.experimental_local_results(batch[1])

        return work.seconds_per_call(calls, seconds, least=1)

    def end_to_end(self, seconds: float) -> float:
        step, params = self._step(_mlp, work.initial_mlp(), work.BATCH)
        batches = self._dataset(work.data())

        def calls(count: int) -> None:
            for _ in range(count):
                for variable, value in zip(params, work.initial_mlp(), strict=True):
                    variable.assign(value)
                for _ in range(work.EPOCHS):
                    losses = [step(*batch) for batch in batches]
                    _ = np.mean([float(loss) for loss in losses])

        return work.seconds_per_call(calls, seconds, least=1)

    def partial(self, seconds: float) -> float:
        step, _ = self._step(_mlp, work.initial_mlp(), work.BATCH)
        batches = self._dataset(work.data(work.PARTIAL_ROWS))

        def calls(count: int) -> None:
            for _ in range(count):
                for batch in batches:
                    loss = step(*batch)
                loss.numpy()

        return work.seconds_per_call(calls, seconds, least=1)

    def reduce(self, size: int, seconds: float) -> float:
        x = self._placed(np.ones((self.replicas, size // 4), np.float32))

        def calls(count: int) -> None:
            for _ in range(count):
                self.strategy.reduce(SUM, x, axis=None)[0, 0].numpy()

        return work.seconds_per_call(calls, seconds)
