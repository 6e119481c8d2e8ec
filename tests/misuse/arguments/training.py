"""Arguments of metrics, controllers and estimators."""

from __future__ import annotations

from typing import Any

import distlab as dl
from tests.misuse.table import row
from tests.misuse.world import World

_NUMBERS = (
    "negative fraction nan true list empty_list empty_tuple scalar_array variable "
    "variable_of_other per_replica of_other"
)


@row("metrics.Mean.update_state.values", _NUMBERS, tells="donated deleted")
def _(w: World, v: Any) -> object:
    metric = dl.metrics.Mean()
    metric.update_state(v)
    return metric.result()


@row("metrics.Accuracy.threshold", "none negative fraction big")
def _(w: World, v: Any) -> object:
    return dl.metrics.Accuracy(v)


@row("metrics.Metric.metric")
def _(w: World, v: Any) -> object:
    return dl.metrics.Metric(v)


@row("Controller.steps_per_loop", "big huge")
def _(w: World, v: Any) -> object:
    return dl.Controller(global_step=dl.Variable(0), trainer=_trainer(w), steps_per_loop=v)


@row("Controller.trainer", tells="none")
def _(w: World, v: Any) -> object:
    return dl.Controller(global_step=dl.Variable(0), trainer=v)


@row("Controller.evaluator", "none")
def _(w: World, v: Any) -> object:
    return dl.Controller(global_step=dl.Variable(0), trainer=_trainer(w), evaluator=v)


@row("Controller.strategy", "none strategy")
def _(w: World, v: Any) -> object:
    return dl.Controller(global_step=dl.Variable(0), trainer=_trainer(w), strategy=v)


@row("Controller.checkpoint_manager", "none")
def _(w: World, v: Any) -> object:
    return dl.Controller(global_step=dl.Variable(0), trainer=_trainer(w), checkpoint_manager=v)


@row("estimator.RunConfig.save_checkpoints_steps", "big huge")
def _(w: World, v: Any) -> object:
    return dl.estimator.RunConfig(save_checkpoints_steps=v)


@row("estimator.RunConfig.keep_checkpoint_max", "none big huge")
def _(w: World, v: Any) -> object:
    return dl.estimator.RunConfig(keep_checkpoint_max=v)


@row("estimator.RunConfig.train_distribute", "none strategy")
def _(w: World, v: Any) -> object:
    return dl.estimator.RunConfig(train_distribute=v)


@row("estimator.TrainSpec.max_steps", "big huge")
def _(w: World, v: Any) -> object:
    return dl.estimator.TrainSpec(lambda: w.dataset, max_steps=v)


@row("estimator.TrainSpec.input_fn", "type function")
def _(w: World, v: Any) -> object:
    return dl.estimator.TrainSpec(v, max_steps=1)


@row("estimator.EvalSpec.steps", "none big huge")
def _(w: World, v: Any) -> object:
    return dl.estimator.EvalSpec(lambda: w.dataset, steps=v)


@row("estimator.Estimator.model_fn", "type function")
def _(w: World, v: Any) -> object:
    return dl.estimator.Estimator(v, model_dir=str(w.folder))


def _trainer(w: World) -> dl.StandardTrainer:
    class Trainer(dl.StandardTrainer):
        def train_step(self, iterator: Any) -> None:
            next(iterator)

    return Trainer(w.strategy.experimental_distribute_dataset(w.dataset))
