"""Programs in the idiom of TensorFlow's tutorials, on records and images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import distlab as dl
from distlab.errors import DataLossError, InvalidArgumentError

WRITTEN = Path(__file__).parent / "records" / "examples.tfrecord"


@pytest.fixture
def strategy() -> dl.MirroredStrategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])


def test_the_tutorial_of_tfrecord_and_example(
    tmp_path: Path, strategy: dl.MirroredStrategy
) -> None:
    """https://www.tensorflow.org/tutorials/load_data/tfrecord, then training on what it wrote."""
    n_observations = 100
    random = np.random.default_rng(0)
    feature0 = random.choice([False, True], n_observations)
    feature1 = random.integers(0, 5, n_observations)
    names = np.array([b"cat", b"dog", b"chicken", b"horse", b"goat"])
    feature2 = names[feature1]
    feature3 = random.normal(size=n_observations)
    features_dataset = dl.data.Dataset.from_tensor_slices((feature0, feature1, feature2, feature3))

    filename = str(tmp_path / "test.tfrecord")
    with dl.io.TFRecordWriter(filename) as writer:
        for f0, f1, f2, f3 in features_dataset:
            writer.write(
                dl.io.serialize_example(
                    {"feature0": f0, "feature1": f1, "feature2": f2, "feature3": f3}
                )
            )

    feature_description = {
        "feature0": dl.io.FixedLenFeature([], jnp.int64, default_value=0),
        "feature1": dl.io.FixedLenFeature([], jnp.int64, default_value=0),
        "feature2": dl.io.FixedLenFeature([], str, default_value=""),
        "feature3": dl.io.FixedLenFeature([], jnp.float32, default_value=0.0),
    }
    parsed = dl.data.TFRecordDataset([filename]).map(
        lambda proto: dl.io.parse_single_example(proto, feature_description)
    )
    (first,) = parsed.take(1)
    assert first["feature2"] == feature2[0]
    assert first["feature3"] == np.float32(feature3[0])

    numbers = parsed.map(lambda row: (row["feature1"], row["feature3"])).batch(16)
    total, seen = 0.0, 0.0
    for f1, f3 in strategy.experimental_distribute_dataset(numbers):
        parts = strategy.run(lambda a, b: (jnp.sum(a * b), jnp.float32(a.size)), args=(f1, f3))
        total += float(strategy.reduce("SUM", parts[0], axis=None))
        seen += float(strategy.reduce("SUM", parts[1], axis=None))
    assert seen == n_observations
    assert total == pytest.approx(float((feature1 * feature3).sum()), rel=1e-4)


def test_flowers_are_read_from_folders_and_divided(
    tmp_path: Path, strategy: dl.MirroredStrategy
) -> None:
    """https://www.tensorflow.org/tutorials/load_data/images, with small pictures."""
    class_names = np.array(["daisy", "roses", "tulips"])
    for label, name in enumerate(class_names):
        (tmp_path / name).mkdir()
        for number in range(5):
            pixels = np.full((20 + number, 30, 3), 80 * label, np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.jpg")
    (tmp_path / "LICENSE.txt").write_text("Not a picture.")

    list_ds = dl.data.Dataset.list_files(str(tmp_path / "*/*"), shuffle=False)
    list_ds = list_ds.shuffle(len(list_ds), seed=1, reshuffle_each_iteration=False)
    val_ds, train_ds = list_ds.take(3), list_ds.skip(3)

    def get_label(file_path: bytes) -> Any:
        parts = file_path.decode().split(os.path.sep)
        return np.argmax(parts[-2] == class_names).astype(np.int32)

    def decode_img(image: bytes) -> jax.Array:
        decoded = dl.io.decode_jpeg(image, channels=3)
        return jax.image.resize(decoded.astype(np.float32), (16, 16, 3), "bilinear")

    def process_path(file_path: bytes) -> tuple[Any, Any]:
        return decode_img(dl.io.read_file(file_path)), get_label(file_path)

    train_ds, val_ds = train_ds.map(process_path), val_ds.map(process_path)
    assert train_ds.element_spec[0].shape == (16, 16, 3)

    def step(images: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
        guesses = jnp.round(images.mean(axis=(1, 2, 3)) / 80).astype(jnp.int32)
        return jnp.sum(guesses == labels), jnp.int32(labels.size)

    right = seen = 0
    for dataset in (train_ds, val_ds):
        batches = strategy.experimental_distribute_dataset(dataset.batch(5).prefetch(2))
        for images, labels in batches:
            results = strategy.run(step, args=(images, labels))
            right += int(strategy.reduce("SUM", results[0], axis=None))
            seen += int(strategy.reduce("SUM", results[1], axis=None))
    assert (right, seen) == (15, 15)


def test_ragged_rows_are_parsed_in_batches_and_divided(
    strategy: dl.MirroredStrategy,
) -> None:
    """A bag of words over TensorFlow's records: batch first, parse then, mask in the step."""
    features = {
        "tokens": dl.io.VarLenFeature(jnp.int64),
        "weight": dl.io.FixedLenFeature([], jnp.float32, default_value=1.25),
    }
    dataset = dl.data.TFRecordDataset(WRITTEN).batch(5)
    dataset = dataset.map(lambda records: dl.io.parse_example(records, features))

    def step(batch: dict[str, Any]) -> jax.Array:
        tokens = batch["tokens"]
        sums = jnp.where(tokens.mask, tokens.dense + 1, 0).sum(axis=1)
        return jnp.sum(sums * batch["weight"])

    total = 0.0
    for batch in strategy.experimental_distribute_dataset(dataset):
        total += float(strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None))
    expected = sum(
        sum(range(1, i % 5 + 1)) * (0.5 * i if i % 3 else 1.25) for i in range(12)
    )  # as they were written
    assert total == pytest.approx(expected)


def test_ragged_rows_are_padded_to_the_same_batches() -> None:
    features = {"tokens": dl.io.VarLenFeature(jnp.int64), "parts": dl.io.VarLenFeature(bytes)}
    records = dl.data.TFRecordDataset(WRITTEN, name="records")
    alone = records.map(lambda record: dl.io.parse_single_example(record, features))
    together = records.batch(5).map(lambda batch: dl.io.parse_example(batch, features))
    for padded, parsed in zip(alone.padded_batch(5), together, strict=True):
        for key in features:
            np.testing.assert_array_equal(padded[key].dense, parsed[key].dense)
            np.testing.assert_array_equal(padded[key].lengths, parsed[key].lengths)
            assert padded[key].to_list() == parsed[key].to_list()
    with pytest.raises(InvalidArgumentError, match=r"one shape.*padded_batch"):
        list(alone.batch(5))


def test_pictures_in_several_record_files_are_read_in_turns(
    tmp_path: Path, strategy: dl.MirroredStrategy
) -> None:
    """As Kaggle's TPU notebooks read theirs; a damaged file stops the epoch and says which."""
    files = []
    for shard in range(3):
        files.append(str(tmp_path / f"train-{shard}-of-3.tfrec"))
        with dl.io.TFRecordWriter(files[-1], "GZIP") as writer:
            for number in range(4):
                path = tmp_path / "picture.png"
                Image.fromarray(np.full((6, 6, 3), 10 * shard + number, np.uint8)).save(path)
                features = {"image": path.read_bytes(), "class": shard, "id": f"{shard}{number}"}
                writer.write(dl.io.serialize_example(features))

    def read_labeled_tfrecord(example: bytes) -> tuple[Any, Any]:
        labeled_format = {
            "image": dl.io.FixedLenFeature([], bytes),
            "class": dl.io.FixedLenFeature([], jnp.int64),
        }
        parsed = dl.io.parse_single_example(example, labeled_format)
        image = dl.io.decode_png(parsed["image"], channels=3).astype(np.float32) / 255.0
        return np.reshape(image, [6, 6, 3]), parsed["class"].astype(np.int32)

    def training_dataset() -> dl.data.Dataset:
        dataset = dl.data.TFRecordDataset(
            files, compression_type="GZIP", num_parallel_reads=dl.data.AUTOTUNE
        )
        return dataset.map(read_labeled_tfrecord, num_parallel_calls=dl.data.AUTOTUNE).batch(6)

    sums = np.zeros(3)
    for images, labels in strategy.experimental_distribute_dataset(training_dataset()):

        def per_class(x: jax.Array, y: jax.Array) -> jax.Array:
            return jnp.zeros(3).at[y].add(x.mean(axis=(1, 2, 3)) * 255)

        sums += np.asarray(
            strategy.reduce("SUM", strategy.run(per_class, args=(images, labels)), axis=None)
        )
    np.testing.assert_allclose(sums, [6, 46, 86], rtol=1e-5)

    damaged = Path(files[1]).read_bytes()[:-20]
    Path(files[1]).write_bytes(damaged)
    with pytest.raises(DataLossError, match=r"train-1-of-3.*is damaged"):
        list(strategy.experimental_distribute_dataset(training_dataset()))
