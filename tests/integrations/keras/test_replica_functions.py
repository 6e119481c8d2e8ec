"""Keras' variables in functions that `strategy.run` runs, as in TensorFlow's custom loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax.numpy as jnp
import keras
import numpy as np
import pytest

import distlab as dl
from distlab.errors import ContextError, RecompilationWarning

X: Final = jnp.ones((4, 3))


def made() -> tuple[dl.Strategy, Any]:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, use_bias=False)])
        model.compile("sgd", "mse")
    model.set_weights([np.ones((3, 2))])
    return strategy, model


def assigned(model: Any, x: Any) -> None:
    model.trainable_variables[0].assign_add(jnp.ones((3, 2)) * x.sum())


def trained(model: Any, x: Any) -> None:
    model.optimizer.apply_gradients([(jnp.ones((3, 2)) * x.sum(), model.trainable_variables[0])])


@pytest.mark.parametrize(("change", "eagerly"), [(assigned, True), (trained, False)])
def test_an_assignment_is_refused_and_changes_no_weights(
    change: Callable[[Any, Any], None], eagerly: bool
) -> None:
    strategy, model = made()
    model.optimizer.build(model.trainable_variables)
    with pytest.raises(ContextError, match=r"strategy\.run runs.*Use model\.fit"):
        strategy.run(
            lambda x: change(model, x), args=(X,), options=dl.RunOptions(run_eagerly=eagerly)
        )
    assert np.asarray(model.get_weights()[0]).tolist() == np.ones((3, 2)).tolist()
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)


def test_a_compiled_function_sees_the_models_present_weights() -> None:
    strategy, model = made()
    _, other = made()

    def total(x: Any) -> Any:
        return model(x).sum() + other(x).sum()

    assert [float(v) for v in strategy.run(total, args=(X,)).values] == [48.0, 48.0]
    other.set_weights([np.zeros((3, 2))])
    assert float(strategy.run(total, args=(X,)).values[1]) == 24.0
    model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    expected = float(model(X).sum())
    assert float(strategy.run(total, args=(X,)).values[0]) == pytest.approx(expected)


def test_weights_that_change_again_and_again_are_told_of() -> None:
    strategy, model = made()

    def total(x: Any) -> Any:
        return model(x).sum()

    strategy.run(total, args=(X,))

    def change() -> None:
        for factor in range(3):
            model.set_weights([factor * np.ones((3, 2))])
            strategy.run(total, args=(X,))

    with pytest.warns(RecompilationWarning, match=r"kernel of Keras.*stateless_call"):
        change()
