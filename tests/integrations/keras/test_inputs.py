"""Input of every kind is divided over the replicas alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError, ContextError, UnsupportedError
from tests.integrations.keras.small import FIT, X, Y, mirrored, model

CLASSES = {0: 2.0, 1: 0.5, 2: 1.0}
STRATEGY = mirrored(3)


@pytest.fixture(scope="module")
def distributed() -> Any:
    with STRATEGY.scope():
        return model()


@pytest.fixture(scope="module")
def weights(distributed: Any) -> Any:
    return distributed.get_weights()


def batches() -> dl.data.Dataset:
    return dl.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def endless() -> Iterator[Any]:
    while True:
        yield from ((X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16))


class Rows(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return X[index * 8 : index * 8 + 8], Y[index * 8 : index * 8 + 8]


def test_each_kind_of_input_gives_the_same_numbers(distributed: Any, weights: Any) -> None:
    validation = [(X, Y), batches(), STRATEGY.experimental_distribute_dataset(batches())]
    arrays = {"x": X, "y": Y, "batch_size": 8}
    kinds: list[dict[str, Any]] = [
        {**arrays, "validation_data": validation[0], "validation_batch_size": 8},
        {"x": batches(), "validation_data": validation[1]},
        {
            "x": STRATEGY.experimental_distribute_dataset(batches()),
            "validation_data": validation[2],
        },
        {"x": endless(), "steps_per_epoch": 3, "validation_data": validation[1]},
        {"x": batches().repeat(), "steps_per_epoch": 3, "validation_data": validation[1]},
        {"x": Rows(), "validation_data": Rows()},
    ]
    histories = []
    for kind in kinds:
        distributed.set_weights(weights)
        histories.append(distributed.fit(**kind, epochs=2, shuffle=False, verbose=0).history)
    assert histories[1:] == histories[:-1]


def test_a_dataset_without_an_end_needs_a_number_of_steps(distributed: Any) -> None:
    with pytest.raises(ArgumentValueError, match="pass steps_per_epoch"):
        distributed.fit(batches().repeat(), verbose=0)


def test_first_data_without_an_example_is_refused() -> None:
    with STRATEGY.scope():
        fresh = model()
    none = batches().take(0)
    for data in ((X[:0], Y[:0]), (none,), (STRATEGY.experimental_distribute_dataset(none),)):
        for verb in (fresh.fit, fresh.evaluate):
            with pytest.raises(ArgumentValueError, match="must have an example or more, got none"):
                verb(*data, verbose=0)


def test_classes_weigh_alike_for_arrays_and_datasets(distributed: Any, weights: Any) -> None:
    losses = []
    for data in ({"x": X, "y": Y, "batch_size": 8}, {"x": batches()}):
        distributed.set_weights(weights)
        fit = distributed.fit(**data, class_weight=CLASSES, shuffle=False, verbose=0)
        losses.append(fit.history["loss"])
    assert losses[0] == losses[1]
    with pytest.raises(UnsupportedError, match="pass the dataset itself"):
        distributed.fit(STRATEGY.experimental_distribute_dataset(batches()), class_weight=CLASSES)


def test_part_of_the_arrays_may_be_kept_for_validation(distributed: Any) -> None:
    history = distributed.fit(X, Y, validation_split=0.25, **FIT).history
    assert set(history) == {"accuracy", "loss", "val_accuracy", "val_loss"}


def test_datasets_are_input_of_a_model_without_a_strategy_too() -> None:
    plain = model()
    losses = plain.fit(batches(), shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(losses, model().fit(X, Y, **FIT).history["loss"], atol=1e-6)
    with pytest.raises(ContextError, match="Make the model in"):
        plain.fit(STRATEGY.experimental_distribute_dataset(batches()), verbose=0)
