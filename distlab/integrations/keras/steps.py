"""A model's steps on the replicas: Keras' `train_step`, `test_step` and `predict_step`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from keras.src.backend import StatelessScope

from distlab.context.modes import RunOptions
from distlab.context.replica_context import ReplicaContext, get_replica_context
from distlab.events import sink
from distlab.integrations.keras import replica
from distlab.integrations.keras.held import Group, Kind, group_of, shares_copies
from distlab.integrations.keras.inputs import SingleBatches, is_divided, sizes_of
from distlab.integrations.keras.results import (
    Path,
    StepLogs,
    emit,
    flattened,
    joined,
    mean_of,
    nested,
)
from distlab.strategies.abstract import Strategy
from distlab.values.distributed import DistributedValues, Mirrored

StepName: TypeAlias = Literal["train_step", "test_step", "predict_step"]
State: TypeAlias = tuple[Any, ...]

_OF_REPLICAS: Final = ("non_trainable", "metrics")
"""Kinds of variables for which a replica may compute values of its own."""

KINDS: Final[dict[StepName, tuple[Kind, ...]]] = {
    "train_step": ("trainable", "non_trainable", "optimizer", "metrics"),
    "test_step": ("trainable", "non_trainable", "metrics"),
    "predict_step": ("trainable", "non_trainable"),
}
"""The state of each step, in the order of Keras' JAX trainer."""


@final
class Steps:
    """The steps of one model under its strategy."""

    def __init__(self, model: Any, strategy: Strategy, *, by_examples: bool) -> None:
        self.strategy = strategy
        self._model = model
        self._by_examples = by_examples
        self._single: SingleBatches | None = None

    def function(self, name: StepName) -> Callable[[Any, Iterator[Any]], tuple[Any, State]]:
        """Returns what Keras calls for the next step, or the next `steps_per_execution`."""
        step = _Step(self, self._model, name, by_examples=self._by_examples)
        executions = self._model.steps_per_execution

        def run(state: Any, batches: Iterator[Any]) -> tuple[Any, State]:
            step.receive(state)  # before its batch is read, which may raise
            results = [step(next(batches))]
            for _ in range(executions - 1):
                try:
                    batch = next(batches)
                except StopIteration:
                    break
                results.append(step(batch))
            if name == "predict_step":
                return _joined(results), step.state
            return results[-1], step.state

        return run

    def record(self, logs: dict[str, Any], prefix: str) -> None:
        """Records the results of an evaluation as metrics."""
        numbers = {name: value for name, value in logs.items() if isinstance(value, float)}
        step = getattr(sink.recorder(), "last_step", -1)
        emit(step, {f"{prefix}{name}": value for name, value in numbers.items()})

    def divided(self, batch: Any) -> Any:
        """Returns a batch divided over the replicas; one that is so already is returned."""
        if self.strategy.num_replicas_in_sync == 1 or is_divided(batch):
            return batch
        if self._single is None:
            self._single = SingleBatches(self.strategy)
        return self._single.divided(batch)


@final
class _Step:
    """One kind of step of a model; `state` is that after the last one, as Keras passes it."""

    def __init__(self, steps: Steps, model: Any, name: StepName, *, by_examples: bool) -> None:
        self.state: State = ()
        self._steps = steps
        self._model = model
        self._name = name
        self._by_examples = by_examples and steps.strategy.num_replicas_in_sync > 1
        self._replica_steps: dict[tuple[tuple[int, ...], ...], Callable[..., Any]] = {}
        self._replica_step: Callable[..., Any] | None = None

    def __call__(self, batch: Any) -> Any:
        """Runs the step on one batch and returns its logs, or its outputs."""
        strategy, batch = self._steps.strategy, self._steps.divided(batch)
        sizes = sizes_of(batch, strategy.num_replicas_in_sync)
        args = (batch, sum(sizes)) if self._by_examples else (batch,)
        eagerly = RunOptions(run_eagerly=True) if self._model.run_eagerly else None
        assert self._replica_step is not None
        result = strategy.run(self._replica_step, args=args, options=eagerly)
        if self._name == "predict_step":
            return _rows(result, strategy)
        return self._logs(result, sizes)

    def receive(self, state: Any) -> None:
        """Takes over the state that Keras passes, unless it is that of the last step."""
        if state is self.state:
            return
        model, strategy = self._model, self._steps.strategy
        groups = tuple(
            arrays
            if isinstance(arrays, Group)
            else group_of(kind, _variables(model, kind), arrays, strategy)
            for kind, arrays in zip(KINDS[self._name], state, strict=True)
        )
        # By kind: a layer that is frozen, or no longer, changes its variables' kinds alone.
        members = tuple(tuple(map(id, group.members)) for group in groups)
        if members not in self._replica_steps:
            self._replica_steps[members] = self._made(groups)
        self._replica_step = self._replica_steps[members]
        self.state = groups

    def _made(self, groups: tuple[Group, ...]) -> Callable[..., Any]:
        """Returns the replica function for these variables."""
        model, name, kinds = self._model, self._name, KINDS[self._name]
        strategy, keras_step = self._steps.strategy, getattr(model, name)
        workers, one_copy = strategy.mesh.shared, shares_copies(strategy)

        def replica_step(batch: Any, total: Any = None) -> Any:
            context = get_replica_context()
            examples = _examples(batch)
            share = None if total is None else examples / total
            state = tuple([held.variable.value() for held in group.members] for group in groups)
            with replica.step(share, empty=examples == 0):
                result, new = keras_step(tuple(map(list, state)), batch)
            changed = (state[0], new) if name == "predict_step" else tuple(new)
            if not examples:
                # What the optimizer updates has the gradients of all replicas: the same on all,
                # which compute it together.
                changed = tuple(
                    list(map(_kept_if_nan, values, old)) if kind in _OF_REPLICAS else values
                    for kind, values, old in zip(kinds, changed, state, strict=True)
                )
            for kind, values, old in zip(groups, changed, state, strict=True):
                for held, value, before in zip(kind.members, values, old, strict=True):
                    if value is not before:
                        held.assign_of_step(value, before)
            if name == "predict_step":
                return jax.tree.map(jnp.atleast_1d, result) if workers else result
            logs = flattened(result)
            if share is not None or one_copy:
                old, new = (part[kinds.index("metrics")] for part in (state, changed))
                logs = _of_all_replicas(model, logs, new, old, share, one_copy=one_copy)
            packed = _packed(logs)
            return _means(packed, context, examples) if workers else packed

        replica_step.__name__ = name
        replica_step.__qualname__ = f"{type(model).__name__}.{name}"
        return replica_step

    def _logs(self, result: tuple[Any, Any], sizes: tuple[int, ...]) -> dict[str, Any]:
        scalars, others = result
        logs: dict[Path, Any] = {path: mean_of(value, sizes) for path, value in others.items()}
        for paths, values in scalars.items():
            record = self._name == "train_step"
            logs |= StepLogs(paths, values, sizes, record=record).items()
        return nested(logs)


def _variables(model: Any, kind: Kind) -> Sequence[Any]:
    if kind == "optimizer":
        return list(model.optimizer.variables) if model.optimizer is not None else []
    variables: Sequence[Any] = getattr(model, f"{kind}_variables")
    return variables


def _examples(batch: Any) -> int:
    """Returns the number of this replica's examples."""
    leaves = jax.tree.leaves(batch)
    return int(leaves[0].shape[0]) if leaves and leaves[0].shape else 1


def _kept_if_nan(new: Any, old: Any) -> Any:
    """Returns the old value where there was nothing to compute a new one from."""
    if new is old or not jnp.issubdtype(new.dtype, jnp.inexact):
        return new
    return jnp.where(jnp.isnan(new), old, new)


def _packed(logs: dict[Path, Any]) -> tuple[dict[tuple[Path, ...], Any], dict[Path, Any]]:
    """Returns the scalars as one vector below their paths, and the other values."""
    arrays = {path: jnp.asarray(value) for path, value in logs.items() if value is not None}
    paths = tuple(path for path, array in arrays.items() if array.shape == ())
    others = {path: array for path, array in arrays.items() if array.shape != ()}
    scalars = [arrays[path].astype(jnp.float32) for path in paths]
    return ({paths: jnp.stack(scalars)} if paths else {}), others


def _of_all_replicas(
    model: Any,
    logs: dict[Path, Any],
    metrics: Sequence[Any],
    before: Sequence[Any],
    share: Any,
    *,
    one_copy: bool,
) -> dict[Path, Any]:
    """Returns logs as one device would log them that has all replicas' examples."""
    context = get_replica_context()
    counted = {
        i: metrics[i] - before[i] if one_copy else metrics[i]
        for i, variable in enumerate(model.metrics_variables)
        if variable.aggregation == "sum"
    }
    if share is None:
        added = context.all_reduce("SUM", counted)
    else:
        logs = {path: jnp.asarray(value) * share for path, value in logs.items()}
        logs, added = context.all_reduce("SUM", (logs, counted))
    totals = list(metrics)
    for i, sums in added.items():
        totals[i] = before[i] + sums if one_copy else sums
    pairs = zip(model.metrics_variables, metrics, before, strict=True)
    changed = {id(variable) for variable, new, old in pairs if new is not old}
    with StatelessScope(state_mapping=list(zip(model.metrics_variables, totals, strict=True))):
        known = _results(model, changed)
    return {path: known.get(path, value) for path, value in logs.items()}


def _results(model: Any, changed: set[int]) -> dict[Path, Any]:
    """Returns the results of a model's metrics by the paths where a step may log them."""
    named: dict[Path, Any] = {}
    unused: set[Path] = set()
    for metric in model.metrics:
        result = metric.result()
        # A train_step of Keras' guide logs a result under the metric's name, a dict too.
        found = flattened({metric.name: result})
        if isinstance(result, Mapping):
            found |= flattened(result)
        if metric.variables and changed.isdisjoint(map(id, metric.variables)):
            unused |= found.keys()
        else:
            named |= found
    for path, value in flattened(model.get_metrics_result()).items():
        if path not in unused:
            named[path] = value
    return named


def _means(packed: Any, context: ReplicaContext, examples: int) -> Any:
    """Returns the means of logs over all workers' replicas that have examples, for any thread."""
    counts = jnp.float32(examples > 0)
    full = context.all_reduce("SUM", counts)
    weight = jnp.where(full > 0, counts / jnp.maximum(full, 1), 1 / context.num_replicas_in_sync)
    parts = jax.tree.map(lambda value: jnp.where(weight > 0, value * weight, 0), packed)
    return jax.tree.map(Mirrored, context.all_reduce("SUM", parts))


def _rows(outputs: Any, strategy: Strategy) -> Any:
    """Returns a nest of outputs with the rows of all replicas."""
    return jax.tree.map(
        lambda output: joined(output, strategy),
        outputs,
        is_leaf=lambda value: isinstance(value, DistributedValues),
    )


def _joined(results: list[Any]) -> Any:
    """Returns the outputs of several steps, one after another."""
    if len(results) == 1:
        return results[0]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *results)
