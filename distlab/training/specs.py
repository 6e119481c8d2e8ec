"""Estimator configuration and results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from distlab.strategies.abstract import Strategy
from distlab.training.checks import require_count, require_function, require_kind
from distlab.user_code import warn_no_effect


class ModeKeys:
    """The modes of a model function (`tf.estimator.ModeKeys`).

    Example:
      >>> import distlab as dl
      >>> dl.estimator.ModeKeys.EVAL
      'eval'
    """

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"


@final
@dataclass(frozen=True)
class RunConfig:
    """Configuration of an Estimator (`tf.estimator.RunConfig`).

    Attributes:
      model_dir: The folder of the checkpoints.
      tf_random_seed: Decides the initial values of variables.
      save_checkpoints_steps: The number of steps from one checkpoint to the next.
      keep_checkpoint_max: The number of checkpoints to keep; None keeps all.
      log_step_count_steps: The number of steps from one log to the next.
      save_summary_steps, save_checkpoints_secs, session_config, keep_checkpoint_every_n_hours,
        protocol, device_fn: Ignored; other values than the default are noted once.
      train_distribute: The strategy of training; None for the current one.
      eval_distribute: The strategy of evaluation and prediction; None for the current one.

    Example:
      >>> import distlab as dl
      >>> config = dl.estimator.RunConfig(train_distribute=dl.MirroredStrategy(["CPU:0", "CPU:1"]))
      >>> config.replace(model_dir="model").save_checkpoints_steps
      100
    """

    model_dir: str | None = None
    tf_random_seed: int = 0
    save_checkpoints_steps: int = 100
    keep_checkpoint_max: int | None = 5
    log_step_count_steps: int = 100
    train_distribute: Strategy | None = None
    eval_distribute: Strategy | None = None
    save_summary_steps: int = 100
    save_checkpoints_secs: int | None = None
    session_config: Any = None
    keep_checkpoint_every_n_hours: int = 10_000
    protocol: str | None = None
    device_fn: Any = None

    def __post_init__(self) -> None:
        _note_ignored(
            self,
            *("save_summary_steps", "save_checkpoints_secs", "session_config"),
            *("keep_checkpoint_every_n_hours", "protocol", "device_fn"),
        )
        for name in ("save_checkpoints_steps", "log_step_count_steps"):
            require_count(name, getattr(self, name))
        require_count("keep_checkpoint_max", self.keep_checkpoint_max, "checkpoints", optional=True)
        for name in ("train_distribute", "eval_distribute"):
            require_kind(name, getattr(self, name), Strategy, optional=True)

    def replace(self, **changes: Any) -> RunConfig:
        """Returns a copy with other values."""
        return dataclasses.replace(self, **changes)


@final
@dataclass(frozen=True)
class EstimatorSpec:
    """Result of a model function (`tf.estimator.EstimatorSpec`).

    Attributes:
      mode: The mode that it was called with.
      predictions: A nest of arrays with a row for each example, to predict.
      loss: The mean loss of the examples that it was given, to train and evaluate.
      train_op: The Optax optimizer that applies the gradients of the loss, to train.
      eval_metric_ops: Arrays by name with a value for each example, whose means are reported.

    Example:
      >>> import distlab as dl
      >>> dl.estimator.EstimatorSpec(mode=dl.estimator.ModeKeys.EVAL, loss=0.5).loss
      0.5
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@final
@dataclass(frozen=True)
class TrainSpec:
    """The training of `train_and_evaluate` (`tf.estimator.TrainSpec`).

    Attributes:
      input_fn: Returns the dataset, whose batches are for one replica each.
      max_steps: The number of steps in all.

    Example:
      >>> import distlab as dl
      >>> dl.estimator.TrainSpec(lambda: dl.data.Dataset.range(8).batch(2), max_steps=4).max_steps
      4
    """

    input_fn: Callable[..., Any]
    max_steps: int

    def __post_init__(self) -> None:
        require_function("input_fn", self.input_fn)
        require_count("max_steps", self.max_steps)


@final
@dataclass(frozen=True)
class EvalSpec:
    """The evaluation of `train_and_evaluate` (`tf.estimator.EvalSpec`).

    Attributes:
      input_fn: Returns the dataset.
      steps: The number of steps of each evaluation; None for all of the data.
      name, hooks, exporters, start_delay_secs, throttle_secs: Ignored, as an evaluation follows
        each checkpoint; other values than the default are noted once.

    Example:
      >>> import distlab as dl
      >>> dl.estimator.EvalSpec(lambda: dl.data.Dataset.range(8).batch(2), steps=None).steps
    """

    input_fn: Callable[..., Any]
    steps: int | None = 100
    name: str | None = None
    hooks: Any = None
    exporters: Any = None
    start_delay_secs: int = 120
    throttle_secs: int = 600

    def __post_init__(self) -> None:
        require_function("input_fn", self.input_fn)
        require_count("steps", self.steps, optional=True)
        _note_ignored(self, "name", "hooks", "exporters", "start_delay_secs", "throttle_secs")


def _note_ignored(made: Any, *names: str) -> None:
    for field in dataclasses.fields(made):
        if field.name in names and getattr(made, field.name) != field.default:
            warn_no_effect(f"{type(made).__name__}.{field.name}")
