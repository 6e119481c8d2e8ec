"""Metrics whose replicas count for themselves: the mathematics of Flax NNX in distlab's variables.

An NNX metric that averages adds to a total and to a count. Here each of these is a variable of
which every replica has its own copy, and reading it adds up the copies: so each example counts
once, whatever part of a batch its replica got. What a batch adds comes from the NNX metric itself,
made anew for it, and so does the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from distlab.devices import in_flight, jax_internals
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingExtraError,
    ValueShapeError,
)
from distlab.strategies.abstract import Strategy
from distlab.text.shown import shown
from distlab.values.checks import as_array
from distlab.values.distributed import DistributedValues, Mirrored
from distlab.variables import frames
from distlab.variables.kinds import VariableAggregation, VariableSynchronization
from distlab.variables.variable import Variable


class Metric:
    """A metric of Flax NNX that reduces right over replicas, partial and empty batches.

    Make it in `strategy.scope()`. Update it in the function that replicas run, or outside with
    what `run` returned; read it outside. As in TensorFlow, a replica that reads it inside sees
    its own part.

    Args:
      metric: An `nnx.metrics.Average`, an `nnx.metrics.Accuracy`, another metric derived from
        them that adds to what it holds, or an `nnx.MultiMetric` of these.
      name: The name that pages show for its variables; by default that of its class.

    Attributes:
      name: Its name.
      variables: Its variables, for a checkpoint.

    Raises:
      ArgumentTypeError: `metric` is none of these.
      ArgumentValueError: `metric` does not start from zeros, so that the copies can't be added.

    Example:
      >>> import distlab as dl, jax.numpy as jnp
      >>> from flax import nnx
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     metrics = dl.metrics.Metric(
      ...         nnx.MultiMetric(loss=nnx.metrics.Average(), accuracy=nnx.metrics.Accuracy())
      ...     )
      >>> dataset = dl.data.Dataset.from_tensor_slices(jnp.array([0, 1, 1])).batch(3)
      >>> (labels,) = strategy.experimental_distribute_dataset(dataset)
      >>> def step(labels):
      ...     logits = jnp.tile(jnp.array([0.0, 1.0]), (len(labels), 1))
      ...     metrics.update_state(values=labels * 2.0, logits=logits, labels=labels)
      >>> strategy.run(step, args=(labels,))
      >>> {name: round(float(value), 3) for name, value in metrics.result().items()}
      {'loss': 1.333, 'accuracy': 0.667}
    """

    def __init__(self, metric: Any, name: str | None = None) -> None:
        nnx = _nnx()
        _check_kind(metric, nnx)
        self.name = name or type(metric).__name__.lower()
        with _of_the_library(), jax.ensure_compile_time_eval():  # a step may make its metrics
            own = nnx.clone(metric)
            own.reset()
            self._definition, state = nnx.split(own)
            paths, self._structure = jax.tree.flatten_with_path(state)
            self._start = tuple(np.asarray(leaf) for _, leaf in paths)
        if any(leaf.any() for leaf in self._start):
            raise ArgumentValueError(
                f"A metric that replicas add up starts from zeros, and {type(metric).__name__} "
                f"starts from {shown(self._start)}. Derive it from nnx.metrics.Average."
            )
        self.variables = tuple(
            Variable(
                leaf,
                name=f"{self.name}/{_name_of(path)}",
                trainable=False,
                synchronization=VariableSynchronization.ON_READ,
                aggregation=VariableAggregation.SUM,
            )
            for (path, _), leaf in zip(paths, self._start, strict=True)
        )

    def update_state(self, **values: Any) -> None:
        """Adds examples.

        Args:
          **values: What the NNX metric's `update` takes. Outside of replica functions they may be
            what `run` returned, or arrays with all examples.

        Raises:
          ArgumentTypeError: A mask is not made of booleans; or outside of replica functions, some
            values are per replica and others are arrays for all.
        """
        if frames.current() is not None:
            self._add(values)
            return
        in_flight.require_open()
        leaves = jax.tree.leaves(values, is_leaf=_is_distributed)
        parts = [_is_distributed(leaf) and not isinstance(leaf, Mirrored) for leaf in leaves]
        if not any(parts):
            self._add_once(jax.tree.map(_common, values, is_leaf=_is_distributed))
            return
        if not all(
            part or not np.ndim(_common(leaf)) for leaf, part in zip(leaves, parts, strict=True)
        ):
            raise ArgumentTypeError(
                f"{self.name}.update_state got some values per replica and others as one array "
                "for all. Pass all of them per replica, or call it in the function that `run` runs."
            )
        strategy = cast(Strategy, self.variables[0].strategy)
        strategy.run(self._add, args=(values,))

    def result(self) -> Any:
        """Returns what the NNX metric computes of all examples so far.

        Returns:
          A number as an array; of an `nnx.MultiMetric` a dictionary of them. Of no examples it is
          nan.
        """
        in_flight.require_open()
        leaves = [variable.value() for variable in self.variables]
        with _of_the_library():
            return self._with(leaves).compute()

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Adds examples, and returns the result: in a replica function that of the replica."""
        self.update_state(*args, **values)
        return self.result()

    def reset_state(self) -> None:
        """Forgets all examples."""
        for variable, start in zip(self.variables, self._start, strict=True):
            variable.assign(start)

    reset_states = reset_state
    """`reset_state`, under its first name in Keras."""

    def _with(self, leaves: Any) -> Any:
        return _nnx().merge(self._definition, jax.tree.unflatten(self._structure, leaves))

    def _added(self, values: dict[str, Any]) -> list[Any]:
        _check_mask(values.get("mask"), values.get("labels", values.get("values")))
        values = self._checked(values)
        with _of_the_library():
            fresh = self._with([jnp.asarray(start) for start in self._start])
            fresh.update(**values)
            return jax.tree.leaves(_nnx().state(fresh))

    def _checked(self, values: dict[str, Any]) -> dict[str, Any]:
        """Checks the arrays of an update, and returns them as a metric of this class needs them."""
        return values

    def _add(self, values: dict[str, Any]) -> None:
        """Adds to this replica's copies."""
        for variable, added in zip(self.variables, self._added(values), strict=True):
            variable.assign_add(added)

    def _add_once(self, values: dict[str, Any]) -> None:
        """Adds to the first copies, outside of replica functions."""
        for variable, added in zip(self.variables, self._added(values), strict=True):
            (variable.values[0] if variable.on_read else variable).assign_add(added)

    def __repr__(self) -> str:
        """Names the metric."""
        return f"<{type(self).__name__} {self.name}>"


class Mean(Metric):
    """The mean of all values: `tf.keras.metrics.Mean`, by `nnx.metrics.Average`.

    Pass a value for each example. A mean of a replica's part would count as one example, and
    that of an empty part is nan.

    Args:
      name: The name that pages show for its variables.

    Example:
      >>> import distlab as dl, jax.numpy as jnp
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
      >>> with strategy.scope():
      ...     mean = dl.metrics.Mean("loss")
      >>> dataset = dl.data.Dataset.from_tensor_slices(jnp.arange(8.0)).batch(5)
      >>> for batch in strategy.experimental_distribute_dataset(dataset):
      ...     strategy.run(lambda losses: mean.update_state(losses), args=(batch,))
      >>> float(mean.result())
      3.5
      >>> mean.reset_state()
      >>> mean.update_state(jnp.array([1.0, 2.0]))
      >>> float(mean.result())
      1.5
    """

    def __init__(self, name: str = "mean") -> None:
        with _of_the_library(), jax.ensure_compile_time_eval():
            average = _nnx().metrics.Average()
        super().__init__(average, name)

    def update_state(self, values: Any, mask: Any = None) -> None:  # type: ignore[override]
        """Adds values.

        Args:
          values: Numbers, one for each example.
          mask: Booleans of their shape; values where it is false are left out.

        Raises:
          ArgumentTypeError: `mask` is not made of booleans, or some are per replica and others
            are arrays for all.
          ValueShapeError: `mask` has another shape than `values`.
        """
        in_flight.require_not_forked()
        super().update_state(values=_as_floats(values), **_masked(mask))


class Accuracy(Metric):
    """The share of right predictions, by `nnx.metrics.Accuracy`.

    Without a threshold this is `tf.keras.metrics.SparseCategoricalAccuracy`, with one about
    `BinaryAccuracy`.

    Args:
      threshold: The logit from which on a prediction is positive, for two classes; by default
        the class with the highest logit is predicted. A string here is the name, as in Keras.
      name: The name that pages show for its variables.

    Example:
      >>> import distlab as dl, jax.numpy as jnp
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with strategy.scope():
      ...     accuracy = dl.metrics.Accuracy()
      >>> labels, logits = jnp.array([0, 1, 1]), jnp.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
      >>> dataset = dl.data.Dataset.from_tensor_slices((labels, logits)).batch(3)
      >>> for batch in strategy.experimental_distribute_dataset(dataset):
      ...     strategy.run(lambda *both: accuracy.update_state(*both), args=batch)
      >>> round(float(accuracy.result()), 3)
      0.667
    """

    def __init__(self, threshold: float | str | None = None, name: str = "accuracy") -> None:
        if isinstance(threshold, str):
            name, threshold = threshold, None
        self._threshold = threshold
        with _of_the_library(), jax.ensure_compile_time_eval():
            accuracy = _nnx().metrics.Accuracy(threshold)
        super().__init__(accuracy, name)

    def update_state(  # type: ignore[override]
        self, labels: Any, logits: Any, mask: Any = None
    ) -> None:
        """Adds predictions.

        Args:
          labels: The true classes, whole numbers.
          logits: The model's output; without a threshold with one more axis, for the classes.
          mask: Booleans of the labels' shape; examples where it is false are left out.

        Raises:
          ArgumentTypeError: `mask` is not made of booleans, or some are per replica and others
            are arrays for all.
          ValueShapeError: Labels are no whole numbers, or the shapes do not fit.
        """
        in_flight.require_not_forked()
        super().update_state(labels=_as_array(labels), logits=_as_array(logits), **_masked(mask))

    def _checked(self, values: dict[str, Any]) -> dict[str, Any]:
        """Checks that logits have a number, or one for each class, for each label."""
        labels, logits = jnp.asarray(values["labels"]), jnp.asarray(values["logits"])
        fitting = logits.shape == labels.shape
        rule = "the shape of the logits, with a threshold"
        if self._threshold is None:
            fitting = logits.ndim == labels.ndim + 1 and logits.shape[:-1] == labels.shape
            rule = "the shape of the logits without their last axis, which has the classes"
        if not fitting or jnp.issubdtype(labels.dtype, jnp.inexact):
            raise ValueShapeError(
                f"update_state takes labels, then logits. Labels are whole numbers of {rule}, got "
                f"labels {labels.dtype}{list(labels.shape)} and logits {logits.dtype}"
                f"{list(logits.shape)}. Of one-hot labels pass labels.argmax(-1)."
            )
        # Flax takes no others, and those of images are often uint8.
        wide = labels.dtype in (jnp.int32, jnp.int64)
        return {**values, "labels": labels if wide else labels.astype(jnp.int32)}


@contextmanager
def _of_the_library() -> Iterator[None]:
    """Computes with NNX's own numbers, which the program's guards and rules do not mean."""
    in_flight.require_not_forked()
    with jax_internals.placing(), jax.numpy_dtype_promotion("standard"):
        yield


def _nnx() -> Any:
    try:
        from flax import nnx
    except ImportError as error:
        raise MissingExtraError(
            "distlab.metrics computes with Flax, which is not installed. Install it with: pip "
            'install "distlab[flax]".'
        ) from error
    return nnx


def _check_kind(metric: Any, nnx: Any) -> None:
    """Refuses metrics whose states can't be added."""
    parts = [metric]
    if isinstance(metric, nnx.MultiMetric):
        parts = [getattr(metric, name) for name in metric._metric_names]
    for part in parts:
        if not isinstance(part, nnx.metrics.Average):
            raise ArgumentTypeError(
                "A metric that replicas add up is an nnx.metrics.Average or derives from it, as "
                f"nnx.metrics.Accuracy does, got {shown(part)}. Pass such a one; compute other "
                "metrics of the examples themselves, which strategy.gather returns."
            )


def _name_of(path: tuple[Any, ...]) -> str:
    """Returns the place of a number in an NNX state, such as `accuracy/total`."""
    return "/".join(str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey))


def _is_distributed(value: Any) -> bool:
    return isinstance(value, DistributedValues)


def _common(value: Any) -> Any:
    """Returns the value that all replicas hold alike; other values unchanged."""
    return value.values[0] if isinstance(value, Mirrored) else value


def _as_array(value: Any) -> Any:
    """Returns numbers as an array; distributed values unchanged."""
    return value if _is_distributed(value) else as_array(value, "update_state")


def _as_floats(value: Any) -> Any:
    """Returns numbers in single precision, as Keras adds them up: bfloat16 has three digits."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), _as_array(value))


def _masked(mask: Any) -> dict[str, Any]:
    return {} if mask is None else {"mask": _as_array(mask)}


def _check_mask(mask: Any, counted: Any) -> None:
    """Refuses weights, which Flax would cut to whole numbers, and masks that would broadcast."""
    if mask is not None and counted is not None and np.shape(mask) != np.shape(counted):
        raise ValueShapeError(
            f"mask says of each example whether it counts, so it has the shape "
            f"{list(np.shape(counted))}, got {list(np.shape(mask))}. Reshape it."
        )
    for leaf in jax.tree.leaves(mask):
        if jnp.asarray(leaf).dtype != bool:
            raise ArgumentTypeError(
                f"mask says which examples count, by booleans, got {jnp.asarray(leaf).dtype}. Pass "
                "mask != 0; weighted values can't be averaged here."
            )
