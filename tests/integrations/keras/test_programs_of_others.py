"""Programs as keras.io has them, with nothing changed but the strategy's lines."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import layers

from tests.integrations.keras.small import FIT, RANDOM, X, Y, mirrored, model


def test_an_early_stop_restores_the_best_weights() -> None:
    with mirrored(2).scope():
        network = model(optimizer=keras.optimizers.SGD(0.1))
    seen = []

    class Seen(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(self.model.get_weights()[0])

    callbacks = [
        Seen(),
        keras.callbacks.LearningRateScheduler(lambda _, rate: rate / 2),
        keras.callbacks.EarlyStopping(min_delta=10.0, patience=2, restore_best_weights=True),
    ]
    fit = network.fit(X, Y, epochs=9, validation_data=(X, Y), callbacks=callbacks, **FIT)
    assert len(fit.history["loss"]) == 3
    np.testing.assert_allclose(fit.history["learning_rate"], [0.05, 0.025, 0.0125])
    np.testing.assert_array_equal(network.get_weights()[0], seen[0])


def test_a_functional_model_with_several_inputs_and_outputs() -> None:
    with mirrored(3).scope():
        title = keras.Input((3,), name="title", dtype="int32")
        tags = keras.Input((4,), name="tags")
        read = layers.GlobalAveragePooling1D()(layers.Embedding(8, 4)(title))
        both = layers.concatenate([read, tags])
        outputs = {
            "priority": layers.Dense(1, name="priority")(both),
            "department": layers.Dense(3, name="department")(both),
        }
        network = keras.Model([title, tags], outputs)
        network.compile(
            "rmsprop",
            loss={
                "priority": keras.losses.BinaryCrossentropy(from_logits=True),
                "department": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            },
            loss_weights={"priority": 1.0, "department": 0.2},
            metrics={"department": ["accuracy"]},
        )
    data = {"title": RANDOM.randint(0, 8, (20, 3)), "tags": X}
    targets = {"priority": RANDOM.randint(0, 2, (20, 1)), "department": Y}
    network.fit(data, targets, **FIT)
    found = network.evaluate(data, targets, batch_size=20, verbose=0, return_dict=True)
    weighted = found["priority_loss"] + 0.2 * found["department_loss"]
    np.testing.assert_allclose(found["loss"], weighted, rtol=1e-5)
    predicted = network.predict(data, batch_size=8, verbose=0)
    right = np.mean(predicted["department"].argmax(1) == Y)
    np.testing.assert_allclose(found["department_accuracy"], right, rtol=1e-5)
