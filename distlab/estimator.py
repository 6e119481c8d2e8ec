"""`tf.estimator`: names of ported programs, on `dl.Controller` and `dl.train`.

A model function makes variables with `get_variable` and returns a loss and an Optax optimizer.
"""

from __future__ import annotations

from distlab.training.estimator import Estimator, train_and_evaluate
from distlab.training.model import get_variable
from distlab.training.specs import EstimatorSpec, EvalSpec, ModeKeys, RunConfig, TrainSpec

__all__ = [
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "ModeKeys",
    "RunConfig",
    "TrainSpec",
    "get_variable",
    "train_and_evaluate",
]
