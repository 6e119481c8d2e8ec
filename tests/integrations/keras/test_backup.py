"""dl.keras.BackupAndRestore: an interrupted fit goes on at the next batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError, ContextError, UnsupportedError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3)).astype("float32")
Y = X.sum(1, keepdims=True)
EPOCHS, BATCH = 3, 8  # 7 batches an epoch, the last of 2 examples


class Interrupt(keras.callbacks.Callback):  # type: ignore[misc]
    """Interrupts fit after a number of batches."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Rows(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * BATCH, index * BATCH + BATCH)
        return X[rows], Y[rows]


def made(replicas: int) -> Any:
    with dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)]).scope():
        dense = keras.layers.Dense(1, kernel_initializer="zeros")
        model = keras.Sequential([keras.Input((3,)), dense])
        model.compile(keras.optimizers.Adam(0.05), "mse")
    return model


def arguments(kind: str) -> dict[str, Any]:
    if kind == "arrays":
        return {"x": X, "y": Y, "batch_size": BATCH, "shuffle": True}
    if kind == "PyDataset":
        return {"x": Rows(), "shuffle": True}
    dataset = dl.data.Dataset.from_tensor_slices((X, Y)).shuffle(
        50, seed=3, reshuffle_each_iteration=False
    )
    return {"x": dataset.batch(BATCH)}


def weights(model: Any) -> Any:
    return np.concatenate([np.ravel(weight) for weight in model.get_weights()])


@pytest.mark.parametrize(("kind", "stop"), [("arrays", 14), ("PyDataset", 9)])
def test_a_resumed_fit_ends_with_an_uninterrupted_ones_weights(
    kind: str, stop: int, tmp_path: Path
) -> None:
    keras.utils.set_random_seed(1)
    whole = made(2)
    whole.fit(**arguments(kind), epochs=EPOCHS, verbose=0)
    interrupted(kind, stop, tmp_path)
    second = made(2)
    resumed(second, kind, tmp_path)
    np.testing.assert_allclose(weights(second), weights(whole), rtol=1e-4, atol=1e-5)


def test_it_goes_on_with_other_replicas_at_the_next_batch(tmp_path: Path) -> None:
    interrupted("dataset", 9, tmp_path)
    seen: list[int] = []
    ends = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, **_: seen.append(batch))
    second = made(3)
    resumed(second, "dataset", tmp_path, ends)
    assert seen == [1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6]  # 8 batches were saved
    assert int(second.optimizer.iterations) == 7 * EPOCHS
    assert list(tmp_path.iterdir()) == []


def test_epochs_of_a_number_of_steps_go_on_in_the_data(tmp_path: Path) -> None:
    def fit(model: Any, *callbacks: Any) -> None:
        dataset = dl.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH).repeat()
        model.fit(dataset, epochs=3, steps_per_epoch=5, verbose=0, callbacks=list(callbacks))

    whole = made(2)
    fit(whole)
    with pytest.raises(KeyboardInterrupt):
        fit(made(2), dl.keras.BackupAndRestore(tmp_path, 2), Interrupt(8))
    second = made(2)
    fit(second, dl.keras.BackupAndRestore(tmp_path, 2))
    np.testing.assert_allclose(weights(second), weights(whole), rtol=1e-4, atol=1e-5)
    with pytest.raises(UnsupportedError, match="steps_per_epoch on arrays or generators"):
        made(2).fit(X, Y, steps_per_epoch=2, callbacks=[dl.keras.BackupAndRestore(tmp_path)])


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    wrong: Any = "batch"
    with pytest.raises(ArgumentValueError, match="save_freq must be"):
        dl.keras.BackupAndRestore(tmp_path, save_freq=wrong)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ContextError, match="a model that is built before fit"):
        keras.callbacks.CallbackList(
            [dl.keras.BackupAndRestore(tmp_path)], model=model
        ).on_train_begin()


def interrupted(kind: str, stop: int, folder: Path) -> None:
    keras.utils.set_random_seed(1)
    model = made(2)
    callbacks = [dl.keras.BackupAndRestore(folder, save_freq=2), Interrupt(stop)]
    with pytest.raises(KeyboardInterrupt):
        model.fit(**arguments(kind), epochs=EPOCHS, verbose=0, callbacks=callbacks)


def resumed(model: Any, kind: str, folder: Path, *others: Any) -> None:
    keras.utils.set_random_seed(99)  # as in another process
    callbacks = [dl.keras.BackupAndRestore(folder, save_freq=2), *others]
    model.fit(**arguments(kind), epochs=EPOCHS, verbose=0, callbacks=callbacks)
