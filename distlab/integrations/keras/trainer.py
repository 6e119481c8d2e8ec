"""Models: those made in a strategy's scope train, evaluate and predict on its replicas."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final, cast

from keras.src import backend, tree
from keras.src.backend.jax.trainer import JAXEpochIterator, JAXTrainer
from keras.src.distribution import distribution_lib
from keras.src.trainers import data_adapters
from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight
from keras.src.trainers.trainer import Trainer

from distlab.context import scopes
from distlab.data import Dataset
from distlab.errors import ScopeError, UnsupportedError, ValueShapeError
from distlab.input.dataset import DistributedDataset
from distlab.integrations.keras.inputs import DatasetAdapter, DividedBatches
from distlab.integrations.keras.patching import Function, patch
from distlab.integrations.keras.replica import models_weigh_examples
from distlab.integrations.keras.steps import StepName, Steps
from distlab.strategies.abstract import Strategy
from distlab.strategies.current import get_strategy
from distlab.strategies.parameter_server import ParameterServerStrategy

_VERBS: Final = ("fit", "train_on_batch", "test_on_batch", "predict_on_batch")


class _Thread(threading.local):
    def __init__(self) -> None:
        self.steps: Steps | None = None


_thread = _Thread()


def patch_trainer() -> None:
    """Makes models remember the strategy in whose scope they were made, and use it."""
    _patch_models()
    _patch_verbs()
    _patch_functions()
    _patch_input()


def steps_of(model: Any) -> Steps | None:
    """Returns the steps of a model that was made in a strategy's scope; None for others."""
    return getattr(model, "_distlab_steps", None)


def _patch_models() -> None:
    @patch(JAXTrainer, "__init__")
    def init(old: Function, self: Any) -> None:
        old(self)
        steps = None
        if scopes.has_strategy():
            strategy = get_strategy()
            _require_possible(self, strategy)
            steps = Steps(self, strategy, by_examples=models_weigh_examples())
        object.__setattr__(self, "_distlab_steps", steps)

    JAXTrainer.distribute_strategy = property(_strategy_of)

    @patch(Trainer, "compile")  # a model whose compile is not Trainer's is loaded uncompiled
    def compile_model(old: Function, self: Any, *args: Any, **options: Any) -> Any:
        _require_made_in_scope(self)
        return old(self, *args, **options)

    @patch(JAXTrainer, "_symbolic_build")
    def _symbolic_build(
        old: Function, self: Any, iterator: Any = None, data_batch: Any = None
    ) -> None:
        steps = steps_of(self)
        if steps is None:
            old(self, iterator, data_batch)
            return
        specs, examples = (None, None) if iterator is None else _specs(iterator)
        try:
            with steps.strategy.scope():
                old(self, specs, data_batch)
        except Exception as error:
            _explain_size(self, examples, error)
            raise


def _patch_verbs() -> None:
    for verb in _VERBS:

        @patch(JAXTrainer, verb)
        def call(old: Function, self: Any, *args: Any, **options: Any) -> Any:
            _require_made_in_scope(self)
            with _using(steps_of(self)):
                return old(self, *args, **options)

    @patch(JAXTrainer, "evaluate")
    def evaluate(
        old: Function, self: Any, *args: Any, return_dict: bool = False, **options: Any
    ) -> Any:
        _require_made_in_scope(self)
        steps = steps_of(self)
        with _using(steps):
            if steps is None:
                return old(self, *args, return_dict=return_dict, **options)
            logs = old(self, *args, return_dict=True, **options)
        steps.record(logs, "val_" if "_use_cached_eval_dataset" in options else "test_")
        return logs if return_dict else self._flatten_metrics_in_order(logs)

    @patch(JAXTrainer, "predict")
    def predict(
        old: Function, self: Any, x: Any, batch_size: Any = None, *args: Any, **options: Any
    ) -> Any:
        _require_made_in_scope(self)
        steps = steps_of(self)
        with _using(steps):
            if steps is not None and not _is_built(self):
                x = _built_on(self, steps, x, batch_size, options.get("steps"))
            return old(self, x, batch_size, *args, **options)


def _patch_functions() -> None:
    for name in ("train", "test", "predict"):
        attribute, step = f"{name}_function", cast(StepName, f"{name}_step")

        @patch(JAXTrainer, f"make_{name}_function")
        def make_function(
            old: Function,
            self: Any,
            force: bool = False,
            *,
            attribute: str = attribute,
            step: StepName = step,
        ) -> Any:
            steps = steps_of(self)
            if steps is None:
                return old(self, force)
            if force or getattr(self, attribute) is None:
                setattr(self, attribute, steps.function(step))
            return None


def _patch_input() -> None:
    @patch(data_adapters, "get_data_adapter")
    def get_data_adapter(old: Function, x: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(x, Dataset | DistributedDataset):
            return old(x, *args, **options)
        for name in ("y", "sample_weight"):
            if options.get(name) is not None:
                data_adapters.raise_unsupported_arg(name, f"`{name}`", "distlab dataset")
        return DatasetAdapter(x, options.get("class_weight"), options.get("steps_per_epoch"))

    @patch(JAXEpochIterator, "__init__")
    def init(old: Function, self: Any, *args: Any, **options: Any) -> None:
        old(self, *args, **options)
        steps = _thread.steps
        self._distlab_batches = (
            None if steps is None else DividedBatches(self.data_adapter, steps.strategy)
        )

    @patch(JAXEpochIterator, "_get_iterator")
    def _get_iterator(old: Function, self: Any) -> Any:
        batches = self._distlab_batches
        return old(self) if batches is None else iter(batches)


@contextlib.contextmanager
def _using(steps: Steps | None) -> Iterator[None]:
    """Gives the input that Keras reads in this block to the replicas of a model."""
    outer, _thread.steps = _thread.steps, steps
    try:
        yield
    finally:
        _thread.steps = outer


def _strategy_of(model: Any) -> Any:
    steps = steps_of(model)
    return get_strategy() if steps is None else steps.strategy


def _require_possible(model: Any, strategy: Strategy) -> None:
    """Checks that a model can be made in the scope of a strategy."""
    if isinstance(strategy, ParameterServerStrategy):
        raise UnsupportedError(
            f"{type(model).__name__} was made in the scope of a ParameterServerStrategy, whose "
            "workers run on their own, while Keras' fit runs all replicas step by step, as on "
            "TensorFlow with Keras 3. Use a MirroredStrategy."
        )
    if distribution_lib.distribution() is not None:
        raise UnsupportedError(
            f"{type(model).__name__} was made in a strategy's scope while a keras.distribution is "
            "set, and both would divide its batches. Call keras.distribution.set_distribution("
            "None), and pass a LayoutMap as MirroredStrategy(model_axis=..., layouts=...)."
        )


def _require_made_in_scope(model: Any) -> None:
    """Checks that a model that is used in a strategy's scope was made in it."""
    if not scopes.has_strategy():
        return
    strategy, steps = get_strategy(), steps_of(model)
    if steps is not None and steps.strategy is strategy:
        return
    variable = next(iter(model.variables), None)
    named = f"Variable ({variable.path})" if variable is not None else f"Model ({model.name})"
    raise ScopeError(
        f"{named} was not created in the distribution strategy scope of ({strategy!r}). It is most "
        "likely because some layers, model, or optimizer was being created outside the "
        "distribution strategy scope. Try to make sure your code looks similar to the following.\n"
        "with strategy.scope():\n"
        "  model=_create_model()\n"
        "  model.compile(...)"
    )


def _specs(epoch: Any) -> tuple[Any, int | None]:
    """Returns an epoch of one batch, shapes and dtypes of a replica's part, and its examples."""
    batches = epoch._distlab_batches
    if batches is None:
        return epoch, None
    spec = batches.spec()
    first = tree.flatten(spec)[0].shape
    return ((0, 0, iter([spec])) for _ in range(1)), first[0] if first else None


def _explain_size(model: Any, examples: int | None, error: Exception) -> None:
    """Raises the reason where a model is built for batches of another size, as stateful ones."""
    sizes = {tensor.shape[0] for tensor in getattr(model, "inputs", None) or ()}
    if examples is not None and sizes.isdisjoint({None, examples}) and sizes:
        raise ValueShapeError(
            f"{model.name} is built for batches of {max(sizes)} examples, and each replica gets "
            f"{examples} of a global batch. Build it with batch_shape=({examples}, ...), and pass "
            "batches that divide evenly."
        ) from error


def _is_built(model: Any) -> bool:
    return all(layer.built for layer in model._flatten_layers())


def _built_on(model: Any, steps: Steps, x: Any, batch_size: Any, number: Any) -> Any:
    """Builds a model from the first batch of its input; returns the input, which can go on."""
    adapter = data_adapters.get_data_adapter(
        x=x, batch_size=batch_size, steps_per_epoch=number, shuffle=False
    )
    inputs, _, _ = unpack_x_y_sample_weight(DividedBatches(adapter, steps.strategy).spec())
    symbols = tree.map_structure(
        lambda spec: backend.KerasTensor(spec.shape, backend.standardize_dtype(spec.dtype)), inputs
    )
    with steps.strategy.scope():
        backend.compute_output_spec(model, symbols, training=False)
    return adapter
