"""Estimator: training that resumes, every example alike, evaluation on other replicas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ContextError,
    InvalidArgumentError,
    NotFoundError,
    StructureError,
    ValueShapeError,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3)).astype("float32")
Y = (X @ np.array([1.0, -2.0, 0.5]) + 0.1 * RNG.normal(size=40)).astype("float32")


def strategy_of(replicas: int) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])


def model_fn(
    features: Any, labels: Any, mode: str, params: dict[str, float]
) -> dl.estimator.EstimatorSpec:
    kernel = dl.estimator.get_variable("kernel", (3,))
    bias = dl.estimator.get_variable("bias", ())
    predicted = features["x"] @ kernel + bias
    if mode == dl.estimator.ModeKeys.PREDICT:
        return dl.estimator.EstimatorSpec(mode, predictions={"y": predicted})
    loss = jnp.mean((predicted - labels) ** 2)
    return dl.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=optax.sgd(params["rate"], momentum=0.9),
        eval_metric_ops={"error": jnp.abs(predicted - labels)},
    )


def data() -> dl.data.Dataset:
    return dl.data.Dataset.from_tensor_slices(({"x": X}, Y))


def made(folder: Path, replicas: int = 2, **config: Any) -> dl.estimator.Estimator:
    run = dl.estimator.RunConfig(
        model_dir=str(folder),
        train_distribute=strategy_of(replicas),
        eval_distribute=strategy_of(3),
        **config,
    )
    return dl.estimator.Estimator(model_fn, config=run, params={"rate": 0.05})


def by_hand(batches: list[tuple[Any, Any]]) -> Any:
    """Returns the kernel and bias after one step for each batch."""
    optimizer = optax.sgd(0.05, momentum=0.9)
    params = (jnp.zeros(3), jnp.zeros(()))
    state = optimizer.init(params)
    for x, y in batches:
        gradients = jax.grad(lambda p, x=x, y=y: jnp.mean((x @ p[0] + p[1] - y) ** 2))(params)
        updates, state = optimizer.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
    return params


@pytest.mark.slow
def test_partial_batches_count_every_example_alike(tmp_path: Path) -> None:
    """40 examples in batches of 12 a replica: on two replicas a step of 24 and one of 12 + 4."""
    estimator = made(tmp_path).train(lambda: data().batch(12))
    kernel, bias = by_hand([(X[:24], Y[:24]), (X[24:], Y[24:])])
    np.testing.assert_allclose(estimator.get_variable_value("kernel"), kernel, rtol=1e-5)
    np.testing.assert_allclose(estimator.get_variable_value("bias"), bias, rtol=1e-5)
    assert estimator.get_variable_names() == ["bias", "kernel"]
    metrics = estimator.evaluate(lambda: data().batch(7))
    error = np.abs(X @ kernel + bias - Y)
    assert metrics["error"] == pytest.approx(error.mean(), rel=1e-5)
    assert metrics["loss"] == pytest.approx((error**2).mean(), rel=1e-5)
    assert metrics["global_step"] == estimator.get_variable_value("global_step") == 2
    with pytest.raises(InvalidArgumentError, match=r"needs a dataset with an end.*number of steps"):
        estimator.evaluate(lambda: data().repeat().batch(8))
    endless = estimator.evaluate(lambda: data().repeat().batch(8), steps=5)
    assert endless == pytest.approx(estimator.evaluate(lambda: data().batch(8)), rel=1e-5)


@pytest.mark.slow
def test_training_goes_on_from_the_newest_checkpoint(tmp_path: Path) -> None:
    estimator = made(tmp_path, save_checkpoints_steps=3, keep_checkpoint_max=2)
    estimator.train(lambda: data().batch(4).repeat(), steps=4)
    again = made(tmp_path, replicas=4)
    again.train(lambda: data().batch(2).repeat(), steps=2)
    assert str(again.latest_checkpoint()).endswith("ckpt-6")
    again.train(lambda: data().batch(2).repeat(), max_steps=5)  # has been reached
    assert str(again.latest_checkpoint()).endswith("ckpt-6")
    batches = [(X[i : i + 8], Y[i : i + 8]) for i in (0, 8, 16, 24, 0, 8)]
    kernel, _ = by_hand(batches)  # each call of train begins with the first batch
    np.testing.assert_allclose(again.get_variable_value("kernel"), kernel, rtol=2e-5)


def test_an_interrupted_training_goes_on_at_the_next_batch(tmp_path: Path) -> None:
    class Interrupting:
        left = 6

        def __call__(self) -> dl.data.Dataset:
            return data().batch(4).map(self.pass_on)

        def pass_on(self, *element: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return element

    interrupting = Interrupting()
    estimator = made(tmp_path, save_checkpoints_steps=1)
    with pytest.raises(KeyboardInterrupt):
        estimator.train(interrupting)
    interrupting.left = 1_000
    made(tmp_path, save_checkpoints_steps=1).train(interrupting)
    kernel, _ = by_hand([(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)])
    np.testing.assert_allclose(estimator.get_variable_value("kernel"), kernel, rtol=2e-5)


@pytest.mark.slow
def test_train_and_evaluate_evaluates_at_each_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator = made(tmp_path, save_checkpoints_steps=10, log_step_count_steps=5)
    metrics, exported = dl.estimator.train_and_evaluate(
        estimator,
        dl.estimator.TrainSpec(lambda: data().shuffle(40, seed=1).batch(4).repeat(), 40),
        dl.estimator.EvalSpec(lambda: data().batch(8), steps=None),
    )
    assert metrics["loss"] < 0.06
    assert (metrics["global_step"], exported) == (40, [])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in lines if line.startswith("eval")] == [
        ["eval", f"step {step}"] for step in (10, 20, 30, 40)
    ]


def test_predictions_come_example_by_example(tmp_path: Path) -> None:
    estimator = made(tmp_path).train(lambda: data().batch(4), steps=3)
    features = dl.data.Dataset.from_tensor_slices({"x": X})
    predictions = list(estimator.predict(lambda: features.batch(6)))
    kernel, bias = (estimator.get_variable_value(name) for name in ("kernel", "bias"))
    np.testing.assert_allclose([p["y"] for p in predictions], X @ kernel + bias, rtol=1e-4)


def test_input_functions_receive_what_they_ask_for(tmp_path: Path) -> None:
    contexts = []

    def input_fn(
        params: dict[str, float], input_context: dl.InputContext | None = None
    ) -> dl.data.Dataset:
        contexts.append((params, input_context))
        return data().batch(4)

    made(tmp_path).train(input_fn, steps=1)
    assert contexts == [({"rate": 0.05}, dl.InputContext(1, 0, 2))]


def test_without_a_strategy_it_trains_on_one_device(tmp_path: Path) -> None:
    estimator = dl.estimator.Estimator(model_fn, str(tmp_path), params={"rate": 0.05})
    estimator.train(lambda: data().batch(8), steps=5)
    kernel, _ = by_hand([(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)])
    np.testing.assert_allclose(estimator.get_variable_value("kernel"), kernel, rtol=2e-5)


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    estimator = made(tmp_path)
    with pytest.raises(NotFoundError, match="There is no trained model"):
        estimator.evaluate(lambda: data().batch(4))
    with pytest.raises(ArgumentValueError, match="steps or max_steps, got 1 and 1"):
        estimator.train(lambda: data().batch(4), steps=1, max_steps=1)
    with pytest.raises(ArgumentTypeError, match="takes no hooks"):
        estimator.train(lambda: data().batch(4), hooks=[1])
    with pytest.raises(ArgumentValueError, match="keeps its model in a folder"):
        dl.estimator.Estimator(model_fn)
    with pytest.raises(ContextError, match="outside of a model function"):
        dl.estimator.get_variable("w", ())
    with pytest.raises(ArgumentValueError, match="save_checkpoints_steps must be"):
        dl.estimator.RunConfig(save_checkpoints_steps=0)

    def no_loss(features: Any, labels: Any, mode: str) -> Any:
        dl.estimator.get_variable("w", ())
        return dl.estimator.EstimatorSpec(mode)

    with pytest.raises(StructureError, match="an Optax optimizer such as"):
        dl.estimator.Estimator(no_loss, str(tmp_path / "a")).train(lambda: data().batch(4))


def test_a_name_that_two_layers_ask_for_is_refused(tmp_path: Path) -> None:
    def dense(x: Any) -> Any:
        return x @ dl.estimator.get_variable("kernel", (3, 3))

    def two_layers(features: Any, labels: Any, mode: str) -> Any:
        loss = jnp.mean((dense(dense(features["x"])).sum(1) - labels) ** 2)
        return dl.estimator.EstimatorSpec(mode, loss=loss, train_op=optax.sgd(0.1))

    estimator = dl.estimator.Estimator(two_layers, str(tmp_path))
    with pytest.raises(ArgumentValueError, match=r"'kernel'.* twice .* a name of its own"):
        estimator.train(lambda: data().batch(4), steps=1)


def test_an_input_function_that_gives_no_dataset_is_refused(tmp_path: Path) -> None:
    estimator = dl.estimator.Estimator(lambda features: features, model_dir=str(tmp_path))
    for wrong, kind, text in (
        (5, ArgumentTypeError, "input_fn must be a function, got 5"),
        (lambda: None, StructureError, "input_fn must return a dataset, got None"),
    ):
        call: Any = wrong
        with pytest.raises(kind, match=text):
            estimator.train(call, steps=1)


@pytest.mark.parametrize(
    ("wrong", "kind", "text"),
    [
        ({"train_op": 3}, StructureError, "must be an Optax optimizer, got 3"),
        ({"loss": jnp.ones(1)}, ValueShapeError, r"float32\[1\].*jnp.mean\(loss\)"),
    ],
)
def test_a_spec_that_can_not_be_trained_is_refused(
    wrong: dict[str, Any], kind: type[Exception], text: str, tmp_path: Path
) -> None:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        loss = (features["x"][:, 0] - labels * dl.estimator.get_variable("w", ())).mean()
        spec = {"loss": loss, "train_op": optax.sgd(0.1), **wrong}
        return dl.estimator.EstimatorSpec(mode, **spec)

    with pytest.raises(kind, match=text):
        dl.estimator.Estimator(model_fn, str(tmp_path)).train(lambda: data().batch(4), steps=1)
