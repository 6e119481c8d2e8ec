"""The views by name: all of a run at once, or one idea alone."""

from __future__ import annotations

from typing import final

from distlab.events import Source
from distlab.widgets._view import View, in_notebook

OVERVIEW = ("batches", "devices", "reductions")
"""The charts of `watch()`."""

SINGLE = {
    "batches": ("batches",),
    "devices": ("devices",),
    "reductions": ("reductions",),
    "placement": ("placement",),
    "steps": ("rates", "timeline"),
}
"""The charts of each single view, by the view's name in small letters."""


@final
class Watch(View):
    """Batches, devices and reductions of a run, with buttons; made by `watch`."""

    def __init__(self, source: Source | None = None, *, batch: int | None = None) -> None:
        super().__init__(OVERVIEW, source, batch=batch, buttons=True)


@final
class Batches(View):
    """One global batch, example by example: which replica got which.

    Args:
      source: the run to show, by default that of this process.
      batch: number of the batch, counted from 0; None for the newest.

    Raises:
      MissingExtraError, RecordError, ArgumentTypeError: as `View`.
    """

    def __init__(self, source: Source | None = None, *, batch: int | None = None) -> None:
        super().__init__(SINGLE["batches"], source, batch=batch, buttons=True)


@final
class Devices(View):
    """The busy share of each device, now and over time.

    Args:
      source: the run to show, by default that of this process.

    Raises:
      MissingExtraError, RecordError, ArgumentTypeError: as `View`.
    """

    def __init__(self, source: Source | None = None) -> None:
        super().__init__(SINGLE["devices"], source)


@final
class Reductions(View):
    """What was combined across replicas: how often, and how many bytes.

    Args:
      source: the run to show, by default that of this process.

    Raises:
      MissingExtraError, RecordError, ArgumentTypeError: as `View`.
    """

    def __init__(self, source: Source | None = None) -> None:
        super().__init__(SINGLE["reductions"], source)


@final
class Placement(View):
    """Which variable lies on which device, with the bytes of each copy.

    Args:
      source: the run to show, by default that of this process.

    Raises:
      MissingExtraError, RecordError, ArgumentTypeError: as `View`.
    """

    def __init__(self, source: Source | None = None) -> None:
        super().__init__(SINGLE["placement"], source)


@final
class Steps(View):
    """How fast the run goes: rates over time, and when each device had a step in flight.

    Args:
      source: the run to show, by default that of this process.

    Raises:
      MissingExtraError, RecordError, ArgumentTypeError: as `View`.
    """

    def __init__(self, source: Source | None = None) -> None:
        super().__init__(SINGLE["steps"], source, buttons=True)


def watch(source: Source | None = None, *, batch: int | None = None) -> Watch | None:
    """Shows a run in the notebook: batches, devices and reductions.

    Call it before the training loop, at the beginning of its cell, or when it
    is done. The view is live while cells run, and a picture of what it shows is
    saved with the notebook. In a script or a terminal it prints a summary. While
    a loop over `distlab.controlled` runs, it has buttons to pause and stop it.

    Args:
      source: the run to show: by default that of this process, from memory;
        also an opened one, such as `distlab.Run.open("runs/first")`.
      batch: number of the batch to show, counted from 0; None for the newest.

    Returns:
      The view, to `close` it; None where there is no notebook.

    Raises:
      MissingExtraError: the packages for notebooks are not installed.
      RecordError: nothing records this process, so there is nothing to show.
      ArgumentTypeError: `source` is no run, or `batch` no number.
    """
    view = Watch(source, batch=batch)
    return view if in_notebook() else None
