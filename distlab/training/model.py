"""A model function's variables, and its steps."""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, final

import jax
import jax.numpy as jnp

from distlab.context.replica_context import get_replica_context
from distlab.errors import ArgumentValueError, ContextError, StructureError, ValueShapeError
from distlab.strategies.abstract import Strategy
from distlab.text.shown import shown
from distlab.training.specs import EstimatorSpec, ModeKeys
from distlab.variables.kinds import VariableAggregation, VariableSynchronization
from distlab.variables.variable import Variable


class _Thread(threading.local):
    def __init__(self) -> None:
        self.model: Model | None = None


_thread = _Thread()


def get_variable(
    name: str, shape: Any = None, dtype: Any = jnp.float32, initializer: Any = None
) -> jax.Array:
    """Returns the value of a model function's variable, which is made at its first use.

    Args:
      name: Its name, one for each variable of the model.
      shape: Its shape, where `initializer` is None or a function.
      dtype: Its dtype.
      initializer: An array, a function of a random key, a shape and a dtype as those of
        `jax.nn.initializers`, or None for Glorot's uniform one, as in TensorFlow; for fewer than
        two dimensions, for zeros.

    Raises:
      ContextError: This is not inside a model function.
      ArgumentValueError: There is no shape, or the model function has asked for the name already.

    Example:
      >>> import jax.numpy as jnp, optax
      >>> import distlab as dl
      >>> def model_fn(features, labels, mode):
      ...     w = dl.estimator.get_variable("w", initializer=jnp.zeros(()))
      ...     loss = jnp.mean((w * features - labels) ** 2)
      ...     return dl.estimator.EstimatorSpec(mode, w * features, loss, optax.sgd(0.1))
      >>> data = dl.data.Dataset.from_tensor_slices((jnp.ones(8), jnp.full(8, 3.0)))
      >>> estimator = dl.estimator.Estimator(model_fn, "model")
      >>> _ = estimator.train(lambda: data.repeat().batch(4), steps=50)  # doctest: +ELLIPSIS
      train | step 50 | loss ...
      >>> round(float(estimator.get_variable_value("w")), 2)
      3.0
    """
    model = _thread.model
    if model is None:
        raise ContextError(
            f"get_variable({name!r}) was called outside of a model function. Call it in the "
            "function that is given to Estimator."
        )
    return model.variable(name, shape, dtype, initializer)


@final
class Model:
    """The variables of a model function, and its optimizer's slots, under a strategy."""

    def __init__(
        self, call: Callable[[Any, Any, str], EstimatorSpec], strategy: Strategy, seed: int
    ) -> None:
        self._call, self._strategy, self._seed = call, strategy, seed
        self._values: Mapping[str, Any] | None = None
        self._building: set[str] | None = None
        self.variables: dict[str, Variable] = {}
        self.slots: Any = None
        on_read, total = VariableSynchronization.ON_READ, VariableAggregation.SUM
        with strategy.scope():
            self.global_step = Variable(0, name="global_step", trainable=False)
            self._loss, self._examples = (
                Variable(0.0, name=name, synchronization=on_read, aggregation=total)
                for name in ("loss", "examples")
            )

    def build(self, element: Any, mode: str) -> None:
        """Makes the variables, by a first call with numbers of an element of the input."""
        first = self._strategy.experimental_local_results(element)[0]
        self._building = set()
        try:
            spec = self.spec(*features_and_labels(first), mode)
        finally:
            self._building = None
        if mode == ModeKeys.TRAIN:
            if spec.loss is None or spec.train_op is None:
                raise StructureError(
                    "To train, the model function must return EstimatorSpec(mode, loss=..., "
                    "train_op=...), the latter an Optax optimizer such as optax.adam(0.001)."
                )
            if not all(hasattr(spec.train_op, name) for name in ("init", "update")):
                raise StructureError(
                    f"train_op of an EstimatorSpec must be an Optax optimizer, got "
                    f"{shown(spec.train_op)}. Write for example train_op=optax.adam(0.001)."
                )
            values = {name: variable.value() for name, variable in self.variables.items()}
            with self._strategy.scope():
                self.slots = jax.tree.map(Variable, spec.train_op.init(values))

    def spec(
        self, features: Any, labels: Any, mode: str, values: Mapping[str, Any] | None = None
    ) -> EstimatorSpec:
        """Calls the model function, with values in the place of its variables' own."""
        with self._current(values):
            spec = self._call(features, labels, mode)
        if not isinstance(spec, EstimatorSpec):
            raise StructureError(
                f"A model function must return an EstimatorSpec, got a {type(spec).__name__}."
            )
        if mode != ModeKeys.PREDICT and getattr(spec.loss, "shape", ()) != ():
            raise ValueShapeError(
                "The loss of an EstimatorSpec must be one number, the mean over the examples, got "
                f"{shown(spec.loss)}. Write for example loss=jnp.mean(loss)."
            )
        return spec

    def variable(self, name: str, shape: Any, dtype: Any, initializer: Any) -> jax.Array:
        """Returns the value of a variable, and makes it if need be."""
        if self._building is not None and name in self._building:
            raise ArgumentValueError(
                f"get_variable({name!r}) was called twice in one call of the model function, which "
                "would share the variable. Give each one a name of its own; to share one on "
                "purpose, keep the value of the first call."
            )
        if self._building is not None:
            self._building.add(name)
        if name not in self.variables:
            with self._strategy.scope():
                value = self._initial(name, shape, dtype, initializer)
                self.variables[name] = Variable(value, name=name)
        if self._values is not None:
            return jnp.asarray(self._values[name])
        return self.variables[name].value()

    def train_step(self, *element: Any) -> None:
        """Applies the gradients of one replica's examples: a replica function."""
        features, labels = features_and_labels(element)
        examples = _examples(features)
        values = {name: variable.value() for name, variable in self.variables.items()}
        optimizers: list[Any] = []

        def loss_of(values: Mapping[str, jax.Array]) -> jax.Array:
            spec = self.spec(features, labels, ModeKeys.TRAIN, values)
            optimizers.append(spec.train_op)
            loss: jax.Array = spec.loss * examples
            return loss

        loss, gradients = jax.value_and_grad(loss_of)(values)
        if not examples:  # the mean of no examples is not a number
            loss, gradients = jnp.zeros_like(loss), jax.tree.map(jnp.zeros_like, gradients)
        sums = (gradients, jnp.float32(examples))
        total, count = get_replica_context().all_reduce("SUM", sums)
        means = jax.tree.map(lambda gradient: gradient / count, total)
        slots = jax.tree.map(lambda variable: variable.value(), self.slots)
        updates, slots = optimizers[0].update(means, slots, values)
        for name, variable in self.variables.items():
            variable.assign_add(updates[name])
        jax.tree.map(lambda variable, slot: variable.assign(slot), self.slots, slots)
        self._loss.assign_add(loss)
        self._examples.assign_add(jnp.float32(examples))
        self.global_step.assign_add(1)

    def eval_step(self, *element: Any) -> dict[str, jax.Array]:
        """Returns the sums of one replica's metrics, and the number of its examples."""
        features, labels = features_and_labels(element)
        examples = _examples(features)
        values = {name: variable.value() for name, variable in self.variables.items()}
        spec = self.spec(features, labels, ModeKeys.EVAL, values)
        metrics = {name: jnp.mean(value) for name, value in spec.eval_metric_ops.items()}
        if spec.loss is not None:
            metrics["loss"] = jnp.asarray(spec.loss)
        sums = {
            name: jnp.float32(value * examples) if examples else jnp.float32(0)
            for name, value in metrics.items()
        }
        return {**sums, "": jnp.float32(examples)}

    def predict_step(self, *element: Any) -> Any:
        """Returns one replica's predictions."""
        features, _ = features_and_labels(element)
        values = {name: variable.value() for name, variable in self.variables.items()}
        return self.spec(features, None, ModeKeys.PREDICT, values).predictions

    def take_loss(self) -> float:
        """Returns the mean loss since the last call."""
        loss = float(self._loss) / max(float(self._examples), 1.0)
        self._loss.assign(0.0)
        self._examples.assign(0.0)
        return loss

    def _initial(self, name: str, shape: Any, dtype: Any, initializer: Any) -> Any:
        if initializer is not None and not callable(initializer):
            return initializer
        if shape is None:
            raise ArgumentValueError(
                f"get_variable({name!r}) needs a shape, or an array as its initializer."
            )
        if initializer is None:
            few = len(tuple(shape)) < 2
            initializer = jax.nn.initializers.zeros if few else jax.nn.initializers.glorot_uniform()
        key = jax.random.fold_in(jax.random.key(self._seed), zlib.crc32(name.encode()))
        return initializer(key, tuple(shape), dtype)

    @contextlib.contextmanager
    def _current(self, values: Mapping[str, Any] | None) -> Iterator[None]:
        outer, outer_values = _thread.model, self._values
        _thread.model, self._values = self, values
        try:
            yield
        finally:
            _thread.model, self._values = outer, outer_values


def features_and_labels(element: Any) -> tuple[Any, Any]:
    """Returns an element as features and labels; a lone one has no labels."""
    if isinstance(element, tuple) and len(element) == 2:
        return element
    return (element[0] if isinstance(element, tuple) and len(element) == 1 else element), None


def _examples(features: Any) -> int:
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(features)]
    return next((shape[0] for shape in shapes if shape), 1)
