"""The views by name: a whole run, or one idea alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from distlab.events import Source
from distlab.widgets._view import View, in_notebook


@final
class Watch(View):
    """The loss, batches, devices and reductions of a run; made by `watch`."""

    panes = ("loss", "batches", "devices", "reductions")
    has_buttons = True
    has_advice = True

    def __init__(self, source: Source | None = None, *, batch: int | None = None) -> None:
        self._open(source, batch)


@final
class Batches(View):
    """One global batch, example by example: which replica received which.

    Args:
      source: The run to show, by default that of this process.
      batch: Number of the batch, counted from 0; None for the newest of the dataset with the
        most batches.

    Raises:
      MissingExtraError: The packages for notebooks are not installed.
      RecordError: Nothing records this process, so there is nothing to show.
      ArgumentTypeError: `source` is not a run, or `batch` is not a number.
      NotARunError: The run is damaged in a way that the view can't pass over.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(5).batch(4)
      >>> with dl.record("runs/first"):
      ...     batches = list(strategy.experimental_distribute_dataset(dataset))
      >>> view = dl.widgets.Batches(dl.Run.open("runs/first"), batch=1)
      distlab: first, finished, 0 steps
      Batch 1 (of 2 so far, from 0): 1 example over 2 replicas
        CPU:0  1 of 2
        CPU:1  empty
      Simulated devices: they share the cores of one machine.
    """

    panes = ("batches",)
    has_buttons = True

    def __init__(self, source: Source | None = None, *, batch: int | None = None) -> None:
        self._open(source, batch)


@final
class Devices(View):
    """The busy share of each device, now and over time.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with dl.record("runs/first"):
      ...     sums = strategy.run(jnp.sum, (jnp.ones(8),))
      >>> view = dl.widgets.Devices(dl.Run.open("runs/first"))
      distlab: first, finished, 1 step
      Busy share of the watched time
        CPU:0  ... %
        CPU:1  ... %
      ...
    """

    panes = ("devices",)


@final
class Reductions(View):
    """Values that were combined across replicas: how often, and how many bytes.

    Example:
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> def step():
      ...     context = dl.get_replica_context()
      ...     return context.all_reduce("SUM", context.replica_id_in_sync_group)
      >>> with dl.record("runs/first"):
      ...     sums = strategy.run(step)
      >>> view = dl.widgets.Reductions(dl.Run.open("runs/first"))
      distlab: first, finished, 1 step
      all-reduce inside step: 1 times 4 B
      Simulated devices: they share the cores of one machine.
    """

    panes = ("reductions",)


@final
class Placement(View):
    """The device of each variable, with the bytes of each copy.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with dl.record("runs/first"), strategy.scope():
      ...     weights = dl.Variable(jnp.zeros((1000, 1000)))
      >>> view = dl.widgets.Placement(dl.Run.open("runs/first"))
      distlab: first, finished, 0 steps
      Bytes of all variables on each device
        CPU:0  4... MB
        CPU:1  4... MB
      ...
    """

    panes = ("placement",)


@final
class Captures(View):
    """When each device computed, waited for others and copied, in the capture of most steps.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with dl.record("runs/first"):
      ...     sums = strategy.run(jnp.sum, (jnp.ones(8),))
      >>> view = dl.widgets.Captures(dl.Run.open("runs/first"))
      distlab: first, finished, 1 step
      No profiles yet. A recording to a file takes one now and then.
      ...
    """

    panes = ("captured",)


@final
class Steps(View):
    """The speed of a run: rates over time, and when each device had a step in flight.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> with dl.record("runs/first"):
      ...     for _ in range(3):
      ...         sums = strategy.run(jnp.sum, (jnp.ones(8),))
      >>> view = dl.widgets.Steps(dl.Run.open("runs/first"))
      distlab: first, finished, 3 steps
      Per second
        steps, on average     ...
        examples, on average  0
      ...
    """

    panes = ("rates", "timeline")
    has_buttons = True


@final
class Chosen(View):
    """The charts that `%%watch` names."""

    has_buttons = True

    def __init__(self, panes: Sequence[str], *, batch: int | None) -> None:
        self.panes = tuple(panes)
        self._open(None, batch)


SINGLE: Final[dict[str, type[View]]] = {
    view.__name__.lower(): view
    for view in (Batches, Devices, Captures, Reductions, Placement, Steps)
}
"""The views of one idea, by their names in `%%watch`."""


def watch(source: Source | None = None, *, batch: int | None = None) -> Watch | None:
    """Shows a run in the notebook: the loss, batches, devices and reductions.

    Call it before the training loop, at the beginning of its cell, or when it
    is done. The view is live while cells run, and a picture of its state is
    saved with the notebook; both have the two most important findings of
    `distlab.advice`. In a script or a terminal it prints a summary. While
    a loop over `distlab.controlled` runs, it has buttons to pause and stop it.

    Args:
      source: The run to show: by default that of this process, from memory; or an
        opened one, such as `distlab.Run.open("runs/first")`.
      batch: Number of the batch to show, counted from 0; None for the newest of the dataset
        with the most batches.

    Returns:
      The view, to `close` it; None where there is no notebook.

    Raises:
      MissingExtraError: The packages for notebooks are not installed.
      RecordError: Nothing records this process, so there is nothing to show.
      ArgumentTypeError: `source` is not a run, or `batch` is not a number.
      NotARunError: The run is damaged in a way that the view can't pass over.

    Example:
      >>> import jax.numpy as jnp
      >>> import distlab as dl
      >>> strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
      >>> dataset = dl.data.Dataset.range(5).batch(4)
      >>> with dl.record("runs/first"):
      ...     for batch in strategy.experimental_distribute_dataset(dataset):
      ...         sums = strategy.run(jnp.sum, (batch,))
      >>> dl.watch(dl.Run.open("runs/first"), batch=0)
      distlab: first, finished, 2 steps with 5 examples
      Batch 0 (of 2 so far, from 0): 4 examples over 2 replicas
        CPU:0  2 ...
        CPU:1  2 ...
      ...
    """
    view = Watch(source, batch=batch)
    return view if in_notebook() else None
