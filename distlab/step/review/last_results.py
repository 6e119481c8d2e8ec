"""The small results of a function's last steps, for the one in which NaN or infinity begins.

A loss that is NaN is noticed steps later, when all replicas have it. Which replica had it first
can only be read from the results of that step, so a few numbers of the last steps are kept.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Sequence
from math import prod
from typing import Any, Final, final

import jax
import numpy as np

from distlab import events
from distlab.devices import jax_internals
from distlab.devices.pieces import pieces
from distlab.events import sink
from distlab.step.programs.program import Program
from distlab.step.review.causes import is_inexact

_STEPS: Final = 256
_LOOK_EVERY: Final = 64
_MOST_RESULTS: Final = 4
_MOST_NUMBERS: Final = 16
_FEWEST: Final = 3
"""Consecutive bad steps before reporting; a replica without examples has no mean."""

_living: weakref.WeakSet[LastResults] = weakref.WeakSet()


def watched(program: Program, strategy: int) -> LastResults | None:
    """Returns what keeps a program's results; None where it has no small ones of floats."""
    local = program.spmd.traces[0]
    given = {(leaf.shapes[0], leaf.dtype) for leaf in program.arguments.dynamic() if leaf.donated}
    small = sorted(
        (prod(out.shape), n)
        for n, out in enumerate(local.jaxpr.out_avals[: local.computed])
        if is_inexact(out.dtype)
        and (tuple(out.shape), out.dtype) not in given
        and 0 < prod(out.shape) <= _MOST_NUMBERS
    )
    # What replicas have in common is not finite on all of them at once.
    shared = {n for n, name in enumerate(local.declared) if name is not None} | program.alike
    own = [n for _, n in small if n not in shared]
    chosen = (own or [n for _, n in small])[:_MOST_RESULTS]
    if not chosen:
        return None
    return LastResults(strategy, program.function, program.source, chosen)


def look_at_all(first_step: int) -> None:
    """Looks at what was kept in a recording, so that events have what began in its last steps."""
    for results in list(_living):
        if results.ran_since(first_step):
            results.look()


sink.before_the_end(look_at_all)


@final
class LastResults:
    """Some results of the last 256 steps of a function."""

    def __init__(
        self, strategy: int, function: str, source: str, positions: Sequence[int] = ()
    ) -> None:
        self._strategy, self._function, self._source = strategy, function, source
        self._positions = positions
        self._kept: deque[tuple[int, Sequence[jax.Array]]] = deque(maxlen=_STEPS)
        self._arrays: Sequence[jax.Array] = []
        self._calls = 0
        self._told = False
        self._recorder: weakref.ref[sink.Recorder] | None = None
        _living.add(self)

    def ran_since(self, first_step: int) -> bool:
        """Returns whether the function ran since a step, and for the recorder in force."""
        if self._recorder is None or self._recorder() is not sink.recorder():
            return False
        last = list(self._kept)[-1:]  # another thread may have cleared them
        return bool(last) and last[0][0] >= first_step

    def take(self, outputs: Sequence[jax.Array]) -> None:
        """Takes the results of a step that was dispatched."""
        self._arrays = list(map(outputs.__getitem__, self._positions))

    def take_small(self, results: list[Any]) -> None:
        """Takes the small results of a step that ran eagerly."""
        self._arrays = [
            leaf
            for leaf in results
            if type(leaf) is jax_internals.ConcreteArray
            and is_inexact(leaf.dtype)
            and 0 < leaf.size <= _MOST_NUMBERS * len(leaf.sharding.device_set)
        ][:_MOST_RESULTS]

    def keep(self, step: int, recorder: sink.Recorder, given: Sequence[Any] = ()) -> None:
        """Keeps the results taken, and now and then looks at them; then at what was given, too."""
        if self._recorder is None or self._recorder() is not recorder:
            self._recorder = weakref.ref(recorder)
            self._kept.clear()
            self._told = False
        self._kept.append((step, self._arrays))
        self._calls += 1
        if self._calls % _LOOK_EVERY == 0:
            self.look(given)

    def look(self, given: Sequence[Any] = ()) -> None:
        """Reports once where results that are not finite began, and where they are finite again."""
        rows: list[int] = []
        bad: list[int] = []
        begun = False
        for step, arrays in reversed(list(self._kept)):
            found = _not_finite(arrays)
            if found is None:
                continue
            if not found:
                begun = True
                break
            rows = found
            bad.append(step)
            if self._told:
                return
        if not bad and self._told:
            self._told = False
            self._emit(-1, -1, [], [], 0, begun=False)
        elif len(bad) >= _FEWEST:
            self._told = True
            self._emit(bad[-1], bad[0], rows, _given_by_some(given), len(bad), begun=begun)

    def _emit(
        self, step: int, last: int, rows: list[int], given: list[int], steps: int, *, begun: bool
    ) -> None:
        sink.recorder().emit(
            events.NotFinite(
                time_ns=time.monotonic_ns(),
                strategy=self._strategy,
                function=self._function,
                source=self._source,
                step=step,
                last_step=last,
                steps=steps,
                replicas=rows,
                arguments=given,
                begun=begun,
            )
        )


def _given_by_some(given: Sequence[Any]) -> list[int]:
    """Returns the replicas that have NaN or infinity in an argument where others have none."""
    found: set[int] = set()
    for leaf in given:
        if type(leaf) is jax_internals.ConcreteArray and is_inexact(leaf.dtype):
            rows = _not_finite([leaf]) or []
            found.update(rows if len(rows) < len(pieces(leaf)) else ())
    return sorted(found)


def _not_finite(arrays: Sequence[jax.Array]) -> list[int] | None:
    """Returns the replicas with a number that is not finite; None where that can't be read yet."""
    found: set[int] = set()
    try:
        for array in arrays:
            if array.is_deleted() or not jax_internals.is_ready(array):
                return None
            for replica, piece in pieces(array):
                if not np.isfinite(np.asarray(piece)).all():
                    found.add(replica)
    except RuntimeError:  # the devices are gone, or the step failed
        return None
    return sorted(found)
