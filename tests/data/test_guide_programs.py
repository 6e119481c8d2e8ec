"""Programs as in TensorFlow's guide to tf.data, ported by changing the prefix."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

import distlab as dl

tf_data = dl.data


def test_time_series_are_cut_into_windows_of_features_and_labels() -> None:
    range_ds = tf_data.Dataset.range(100)

    def dense_1_step(batch: Any) -> Any:
        return batch[:-1], batch[1:]

    batches = range_ds.batch(10, drop_remainder=True)
    features, labels = next(iter(batches.map(dense_1_step)))
    assert features.tolist() == list(range(9))
    assert labels.tolist() == list(range(1, 10))

    predict = tf_data.Dataset.zip((range_ds.batch(10), range_ds.batch(5).skip(1)))
    assert [label[0] for _, label in predict.take(2)] == [5, 10]

    def make_window_dataset(
        ds: tf_data.Dataset, window_size: int = 5, shift: int = 1, stride: int = 1
    ) -> tf_data.Dataset:
        windows = ds.window(window_size, shift=shift, stride=stride)

        def sub_to_batch(sub: tf_data.Dataset) -> tf_data.Dataset:
            return sub.batch(window_size, drop_remainder=True)

        return windows.flat_map(sub_to_batch)

    ds = make_window_dataset(range_ds, window_size=10, shift=5, stride=3)
    assert [example.tolist() for example in ds.take(3)] == [
        [0, 3, 6, 9, 12, 15, 18, 21, 24, 27],
        [5, 8, 11, 14, 17, 20, 23, 26, 29, 32],
        [10, 13, 16, 19, 22, 25, 28, 31, 34, 37],
    ]
    pairs = ds.map(lambda window: (window[:-1], window[-1])).shuffle(4, seed=1).batch(4).prefetch(1)
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def step(window: Any, label: Any) -> Any:
        return jnp.sum(label - window.mean(axis=1))

    gaps = 0.0
    for window, label in strategy.experimental_distribute_dataset(pairs):
        gaps += float(strategy.reduce("SUM", strategy.run(step, args=(window, label)), axis=None))
    # Each label is 15 after the mean of its window.
    assert gaps == 15.0 * len(list(ds))


def test_sequences_are_padded_and_a_mask_ignores_the_padding() -> None:
    dataset = tf_data.Dataset.range(1, 14, output_type=np.int32)
    dataset = dataset.map(lambda x: np.full([x], x), num_parallel_calls=tf_data.AUTOTUNE)
    dataset = dataset.map(lambda x: {"tokens": x, "length": np.int32(len(x))})
    dataset = dataset.padded_batch(
        4,
        padded_shapes={"tokens": (None,), "length": ()},
        padding_values={"tokens": -1, "length": 0},
    )
    shapes = [batch["tokens"].shape for batch in dataset]
    assert shapes == [(4, 4), (4, 8), (4, 12), (1, 13)]
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])

    def step(features: Any) -> Any:
        mask = features["tokens"] >= 0
        return jnp.where(mask, features["tokens"], 0).sum(), features["length"].sum(), mask.sum()

    total = lengths = masked = 0
    for features in strategy.experimental_distribute_dataset(dataset):
        results = strategy.run(step, args=(features,))
        added = [int(strategy.reduce("SUM", result, axis=None)) for result in results]
        total, lengths, masked = total + added[0], lengths + added[1], masked + added[2]
    assert total == sum(n * n for n in range(1, 14))
    assert lengths == masked == sum(range(1, 14))
