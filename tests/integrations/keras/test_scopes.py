"""Models that belong to a strategy, and what is refused."""

from __future__ import annotations

import inspect

import keras
import pytest
from keras import layers

import distlab as dl
from distlab.errors import ArgumentValueError, ScopeError, UnsupportedError
from tests.integrations.keras.small import FIT, X, Y, mirrored, model

TENSORFLOWS = "was not created in the distribution strategy scope of"


def test_a_model_made_outside_is_refused_in_a_scope() -> None:
    plain = model()
    with mirrored(2).scope():
        for verb in ("compile", "fit", "evaluate", "predict", "train_on_batch"):
            with pytest.raises(ScopeError, match=TENSORFLOWS) as error:
                getattr(plain, verb)(X)
            assert "model.compile(...)" in str(error.value)
            assert isinstance(error.value, ValueError)


def test_a_model_of_another_strategy_is_refused_in_a_scope() -> None:
    with mirrored(2).scope():
        other = model()
    with mirrored(3).scope(), pytest.raises(ScopeError, match=TENSORFLOWS):
        other.fit(X, Y)


def test_a_model_may_be_used_inside_its_scope_and_outside() -> None:
    strategy = mirrored(2)
    with strategy.scope():
        distributed = model()
        inside = distributed.evaluate(X, Y, batch_size=20, verbose=0)
    assert distributed.evaluate(X, Y, batch_size=20, verbose=0) == inside
    assert distributed.distribute_strategy is strategy


def test_a_model_of_no_strategy_runs_keras_own_code() -> None:
    plain = model()
    plain.fit(X, Y, **FIT)
    assert plain.train_function.__module__.startswith("keras.")
    assert plain.distribute_strategy is dl.get_strategy()
    assert list(inspect.signature(keras.Model.fit).parameters)[:4] == [
        "self",
        "x",
        "y",
        "batch_size",
    ]
    with pytest.raises(ValueError, match="only supported with the TensorFlow backend"):
        layers.BatchNormalization(synchronized=True)


def test_parameter_servers_have_no_replicas_in_sync() -> None:
    cluster = dl.ClusterSpec({"worker": ["localhost:7801"], "ps": ["localhost:7802"]})
    servers = [dl.Server(cluster, job_name=job, task_index=0, start=True) for job in cluster.jobs]
    resolver = dl.cluster_resolver.SimpleClusterResolver(cluster)
    scope = dl.ParameterServerStrategy(resolver).scope()
    with scope, pytest.raises(UnsupportedError, match="Use a MirroredStrategy"):
        model()
    del servers


def test_keras_does_not_distribute_what_a_strategy_does() -> None:
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"]))
    try:
        with mirrored(2).scope(), pytest.raises(UnsupportedError, match="set_distribution"):
            model()
    finally:
        keras.distribution.set_distribution(None)


def test_examples_or_replicas_are_weighed_and_nothing_else() -> None:
    with pytest.raises(ArgumentValueError, match='"replicas" or "examples", got \'batches\''):
        dl.keras.weigh_by("batches")  # type: ignore[arg-type]
