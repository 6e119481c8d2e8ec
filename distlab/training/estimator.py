"""TensorFlow's Estimator on a `Controller`: a model function, and its training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

import jax
import numpy as np

from distlab.data import Dataset
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    NotFoundError,
    OutOfRangeError,
    StructureError,
)
from distlab.input.context import InputContext
from distlab.integrations.orbax.checkpoint import Checkpoint
from distlab.integrations.orbax.files import absolute
from distlab.integrations.orbax.manager import (
    CheckpointManager,
    latest_checkpoint,
    list_variables,
    load_variable,
)
from distlab.strategies.abstract import Strategy
from distlab.strategies.current import get_strategy
from distlab.text.shown import shown
from distlab.training.checks import require_count, require_end, require_function, require_kind
from distlab.training.controller import Controller
from distlab.training.model import Model
from distlab.training.specs import EstimatorSpec, EvalSpec, ModeKeys, RunConfig, TrainSpec
from distlab.training.standard import Outputs, StandardTrainer


@final
class Estimator:
    """Trains, evaluates and predicts with a model function (`tf.estimator.Estimator`).

    The model function receives one replica's features and labels and, where it has such
    parameters, `mode`, `params` and `config`. It makes its variables with
    `dl.estimator.get_variable` and returns an `EstimatorSpec` with a loss and an Optax optimizer.
    Each step takes a batch of the input function for every replica, and every example counts
    alike. Training resumes from `model_dir`, at the next batch if it was interrupted.

    Args:
      model_fn: The model function.
      model_dir: The folder of the checkpoints, instead of the configuration's.
      config: A `RunConfig`.
      params: Passed to the model function as `params`.

    Raises:
      ArgumentValueError: There is no folder.
      ArgumentTypeError: `model_fn` is no function, or `config` no `RunConfig`.

    Example:
      >>> import jax.numpy as jnp, optax
      >>> import distlab as dl
      >>> def model_fn(features, labels, mode, params):
      ...     w = dl.estimator.get_variable("w", initializer=jnp.zeros(()))
      ...     loss = jnp.mean((w * features - labels) ** 2)
      ...     error = {"error": jnp.abs(w * features - labels)}
      ...     optimizer = optax.sgd(params["rate"])
      ...     return dl.estimator.EstimatorSpec(mode, w * features, loss, optimizer, error)
      >>> data = dl.data.Dataset.from_tensor_slices((jnp.ones(8), jnp.full(8, 3.0)))
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> config = dl.estimator.RunConfig(model_dir="model", train_distribute=strategy)
      >>> estimator = dl.estimator.Estimator(model_fn, config=config, params={"rate": 0.1})
      >>> _ = estimator.train(lambda: data.repeat().batch(4), steps=50)  # doctest: +ELLIPSIS
      train | step 50 | loss ...
      >>> {k: round(v, 2) for k, v in estimator.evaluate(lambda: data.batch(3)).items()}
      {'error': 0.0, 'loss': 0.0, 'global_step': 50}
    """

    def __init__(
        self,
        model_fn: Callable[..., EstimatorSpec],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
    ) -> None:
        require_function("model_fn", model_fn)
        require_kind("config", config, RunConfig, optional=True)
        config = config or RunConfig()
        if model_dir is not None:
            absolute(model_dir)
        self.config = config if model_dir is None else config.replace(model_dir=str(model_dir))
        if self.config.model_dir is None:
            raise ArgumentValueError(
                "An Estimator keeps its model in a folder. Pass model_dir, or a RunConfig with one."
            )
        self._model_fn, self.params = model_fn, params
        self._wants = _parameters(model_fn)
        self._models: dict[str, tuple[Strategy, Model]] = {}

    @property
    def model_dir(self) -> str:
        """The folder of the checkpoints."""
        return str(self.config.model_dir)

    def train(
        self,
        input_fn: Callable[..., Dataset],
        hooks: Any = None,
        steps: int | None = None,
        max_steps: int | None = None,
    ) -> Estimator:
        """Trains for some steps, until a number of steps in all, or to the end of the data.

        Args:
          input_fn: Returns a dataset, whose batches are for one replica each. It may have the
            parameters `params`, `config` and `input_context`.
          hooks: Must be None; a `Controller` has `train_actions`.
          steps: The number of steps to take.
          max_steps: The number of steps in all, of earlier calls too.

        Returns:
          This estimator.

        Raises:
          ArgumentValueError: Both numbers are given.
          ArgumentTypeError: `input_fn` is no function.
          StructureError: `input_fn` returns no dataset, or the model function no `EstimatorSpec`
            with an optimizer.
          ValueShapeError: The loss is not one number.
        """
        if hooks:
            raise ArgumentTypeError(
                "train takes no hooks. Use a dl.Controller, which has train_actions."
            )
        if steps is not None and max_steps is not None:
            raise ArgumentValueError(
                f"train takes steps or max_steps, got {steps} and {max_steps}. Leave one out."
            )
        require_count("steps", steps, optional=True)
        require_count("max_steps", max_steps, optional=True)
        training = self.begin(input_fn)
        until = max_steps if steps is None else training.controller.step + steps
        training.until(until)
        training.finish()
        return self

    def evaluate(
        self, input_fn: Callable[..., Dataset], steps: int | None = None
    ) -> dict[str, float]:
        """Evaluates the newest checkpoint.

        Args:
          input_fn: Returns a dataset, as for `train`.
          steps: The number of steps; None for all of the data.

        Returns:
          The means of the metrics and of the loss over the examples, and `global_step`.

        Raises:
          NotFoundError: There is no checkpoint.
          InvalidArgumentError: The data has no end, and `steps` is None.
        """
        require_count("steps", steps, optional=True)
        strategy, model, elements = self._restored(input_fn, ModeKeys.EVAL)
        if steps is None:
            require_end(elements)
        sums: dict[str, float] = {}
        for number, element in enumerate(elements):
            if number == steps:
                break
            part = strategy.run(model.eval_step, args=_arguments(element))
            for name, value in part.items():
                total = strategy.reduce("SUM", value, axis=None)
                sums[name] = sums.get(name, 0.0) + float(total)
        examples = sums.pop("", 0.0)
        means = {name: total / max(examples, 1.0) for name, total in sums.items()}
        return {**means, "global_step": int(model.global_step)}

    def predict(self, input_fn: Callable[..., Dataset]) -> Iterator[Any]:
        """Yields the newest checkpoint's predictions, example by example.

        Args:
          input_fn: Returns a dataset of features, or of features and labels.

        Raises:
          NotFoundError: There is no checkpoint.
        """
        strategy, model, elements = self._restored(input_fn, ModeKeys.PREDICT)
        for element in elements:
            results = strategy.run(model.predict_step, args=_arguments(element))
            for part in strategy.experimental_local_results(results):
                leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, part))
                for row in zip(*leaves, strict=True):
                    yield jax.tree.unflatten(structure, row)

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint; None where there is none."""
        return latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Returns the names of the model's variables in the newest checkpoint."""
        names = [name for name, _ in list_variables(self._require_checkpoint())]
        return [name.removeprefix("model/") for name in names if name.startswith("model/")]

    def get_variable_value(self, name: str) -> np.ndarray[Any, Any]:
        """Returns a variable of the newest checkpoint, or its `global_step`."""
        path = self._require_checkpoint()
        return load_variable(path, name if name == "global_step" else f"model/{name}")

    def begin(self, input_fn: Callable[..., Dataset]) -> Training:
        """Makes the model and its input, and restores the newest checkpoint."""
        config = self.config
        strategy = config.train_distribute or get_strategy()
        dataset = self._input(strategy, input_fn, ModeKeys.TRAIN)
        model = self._built(strategy, dataset, ModeKeys.TRAIN)
        trainer = _Trainer(dataset, strategy, model)
        checkpoint = Checkpoint(
            model=model.variables, slots=model.slots, global_step=model.global_step
        )
        manager = CheckpointManager(
            checkpoint,
            self.model_dir,
            max_to_keep=config.keep_checkpoint_max,
            step_counter=model.global_step,
            checkpoint_interval=config.save_checkpoints_steps,
        )
        controller = Controller(
            trainer=trainer,
            global_step=model.global_step,
            steps_per_loop=min(config.log_step_count_steps, config.save_checkpoints_steps),
            checkpoint_manager=manager,
        )
        return Training(controller, manager, trainer, dataset)

    def _restored(self, input_fn: Callable[..., Dataset], mode: str) -> tuple[Strategy, Model, Any]:
        path = self._require_checkpoint()
        strategy = self.config.eval_distribute or get_strategy()
        dataset = self._input(strategy, input_fn, mode)
        model = self._built(strategy, dataset, mode)
        Checkpoint(model=model.variables, global_step=model.global_step).restore(path)
        return strategy, model, dataset

    def _require_checkpoint(self) -> str:
        path = self.latest_checkpoint()
        if path is None:
            raise NotFoundError(
                f"There is no trained model in {self.model_dir}. Call train first, or pass the "
                "folder of a model that was trained."
            )
        return path

    def _built(self, strategy: Strategy, dataset: Any, mode: str) -> Model:
        """Returns a model whose values are to be restored; its programs are compiled once."""
        known = self._models.get(mode)
        if known is not None and known[0] is strategy and self.latest_checkpoint() is not None:
            return known[1]
        model = Model(self._call, strategy, self.config.tf_random_seed)
        model.build(next(iter(dataset)), mode)
        self._models[mode] = strategy, model
        return model

    def _call(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        known = {"labels": labels, "mode": mode, "params": self.params, "config": self.config}
        wanted = {name: value for name, value in known.items() if name in self._wants}
        return self._model_fn(features, **wanted)

    def _input(self, strategy: Strategy, input_fn: Callable[..., Dataset], mode: str) -> Any:
        require_function("input_fn", input_fn)
        wants = _parameters(input_fn)
        known = {"mode": mode, "params": self.params, "config": self.config}
        given = {name: value for name, value in known.items() if name in wants}

        def make(context: InputContext) -> Dataset:
            own = {"input_context": context} if "input_context" in wants else {}
            dataset: Dataset = input_fn(**given, **own)
            if isinstance(dataset, Iterable):
                return dataset
            raise StructureError(
                f"input_fn must return a dataset, got {shown(dataset)}. Write "
                "return dataset.batch(size) at its end."
            )

        if strategy.distributed:
            return strategy.distribute_datasets_from_function(make)
        return make(InputContext())


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[dict[str, float], list[Any]]:
    """Trains, and evaluates at each checkpoint (`tf.estimator.train_and_evaluate`).

    Args:
      estimator: The estimator.
      train_spec: The training.
      eval_spec: The evaluations.

    Returns:
      The metrics of the last evaluation, and an empty list: nothing is exported.

    Example:
      >>> import jax.numpy as jnp, optax
      >>> import distlab as dl
      >>> def model_fn(features, labels, mode):
      ...     w = dl.estimator.get_variable("w", initializer=jnp.zeros(()))
      ...     loss = jnp.mean((w * features - labels) ** 2)
      ...     return dl.estimator.EstimatorSpec(mode, w * features, loss, optax.sgd(0.1))
      >>> data = dl.data.Dataset.from_tensor_slices((jnp.ones(8), jnp.full(8, 3.0)))
      >>> config = dl.estimator.RunConfig(model_dir="model", save_checkpoints_steps=20)
      >>> metrics, _ = dl.estimator.train_and_evaluate(
      ...     dl.estimator.Estimator(model_fn, config=config),
      ...     dl.estimator.TrainSpec(lambda: data.repeat().batch(4), max_steps=40),
      ...     dl.estimator.EvalSpec(lambda: data.batch(3), steps=None),
      ... )  # doctest: +ELLIPSIS
      train | step 20 | loss ...
      eval | step 20 | loss ...
      train | step 40 | loss ...
      eval | step 40 | loss ...
      >>> round(metrics["loss"], 2), metrics["global_step"]
      (0.0, 40)
    """
    training = estimator.begin(train_spec.input_fn)
    every = estimator.config.save_checkpoints_steps
    metrics: dict[str, float] = {}
    while training.controller.step < train_spec.max_steps and not training.ended:
        training.until(min(training.controller.step + every, train_spec.max_steps))
        metrics = estimator.evaluate(eval_spec.input_fn, eval_spec.steps)
        training.controller.log("eval", {n: v for n, v in metrics.items() if n != "global_step"})
    training.finish()
    if not metrics and estimator.latest_checkpoint() is not None:
        metrics = estimator.evaluate(eval_spec.input_fn, eval_spec.steps)
    return metrics, []


@final
class _Trainer(StandardTrainer):
    def __init__(self, dataset: Any, strategy: Strategy, model: Model) -> None:
        super().__init__(dataset)
        self._strategy, self._model = strategy, model

    def train_step(self, iterator: Iterator[Any]) -> None:
        self._strategy.run(self._model.train_step, args=_arguments(next(iterator)))

    def train_loop_end(self) -> Outputs:
        return {"loss": self._model.take_loss()}


@final
@dataclass
class Training:
    """A training in progress, whose input goes on from one call to the next."""

    controller: Controller
    manager: CheckpointManager
    trainer: _Trainer
    dataset: Any
    ended: bool = False

    def until(self, steps: int | None) -> None:
        """Trains up to a number of steps in all, or to the end of the data."""
        try:
            if steps is None:
                while True:
                    self.controller.train(self.controller.step + 1_000, False)
            self.controller.train(steps)
        except OutOfRangeError:
            self.ended = True
            self.manager.save(self.controller.step, check_interval=False)

    def finish(self) -> None:
        """Saves with the input at its beginning, where the next call of `train` starts."""
        self.manager.checkpoint.train_iterator = iter(self.dataset)
        self.manager.save(self.controller.step, check_interval=False)
        self.manager.sync()


def _parameters(fn: Callable[..., Any]) -> set[str]:
    """Returns the names of a function's parameters; none of a class that has no signature."""
    try:
        return set(inspect.signature(fn).parameters)
    except ValueError:
        return set()


def _arguments(element: Any) -> tuple[Any, ...]:
    return element if isinstance(element, tuple) else (element,)
