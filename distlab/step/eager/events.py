"""The events of steps that run as ordinary Python."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeGuard, final

import jax

from distlab import events
from distlab.context import modes
from distlab.events import numbering, sink
from distlab.step.programs import calls
from distlab.step.programs.place import Place
from distlab.step.review.causes import is_inexact, is_meant_equal
from distlab.step.review.copies import Comparisons, compared
from distlab.step.review.last_results import LastResults
from distlab.user_code import calling_line
from distlab.values.checks import function_name, function_source
from distlab.variables.protocol import StoredVariable
from distlab.variables.variable import Variable

_MOST_COMPARED: Final = 8


def watch_of(place: Place, fn: Callable[..., Any]) -> EagerWatch:
    """Returns the watch of a function's eager steps, a new one for a new function."""
    key = function_name(fn), function_source(fn)
    known = place.eager_programs.get(key)
    if known is None:
        known = place.eager_programs[key] = EagerWatch(place.number, *key)
    watch: EagerWatch = known
    return watch


@final
class EagerWatch:
    """Events of a function that runs eagerly, and comparisons of the copies that it assigns."""

    def __init__(self, strategy: int, function: str, source: str) -> None:
        self._number = next(numbering.programs)
        self._strategy, self._function, self._source = strategy, function, source
        self._comparisons = Comparisons(self._number, strategy)
        self._results = LastResults(strategy, function, source)
        self._calls = 0
        self._apart: dict[str, tuple[Variable, str]] = {}
        self._kept: dict[str, weakref.ref[jax.Array] | None] = {}
        self._lock = threading.Lock()

    def before(self) -> None:
        """Compares, before a step, the copies that somebody else has assigned since the last."""
        with self._lock:
            for subject, (variable, line) in list(self._apart.items()):
                if variable.storage.holds(self._kept[subject]):
                    continue
                worth = self._comparisons.look(
                    subject, unchanged=False, held=variable, due=False, source=line
                )
                if not worth:
                    del self._apart[subject]

    def after(
        self,
        place: Place,
        leaves: list[Any],
        result: Any,
        *,
        called: int,
        assigned: dict[StoredVariable, str],
    ) -> None:
        """Emits a step that ran; before a function's first one what the function is."""
        with self._lock:
            recorder = sink.recorder()
            if not self._calls:
                recorder.emit(self._compile())
            examples = place.batch.examples_among(leaves)
            step = calls.emit_step(recorder, self._number, self._strategy, called, examples)
            self._calls += 1
            self._comparisons.step = step
            if place.mesh.replicas > 1:
                self._compare(assigned)
            self._results.take_small(jax.tree.leaves(result))
            self._results.keep(step, recorder, leaves)

    def _compare(self, assigned: dict[StoredVariable, str]) -> None:
        """Compares copies after steps 1, 2, 4, 8 and so on, as of compiled functions."""
        due = self._calls & (self._calls - 1) == 0
        if due:
            for variable, line in assigned.items():
                subject = f"variable {variable.name}"
                room = subject in self._apart or len(self._apart) < _MOST_COMPARED
                if room and _may_drift(variable) and compared(variable)[0]:
                    self._apart[subject] = variable, line
        for subject, (variable, line) in self._apart.items():
            self._kept[subject] = variable.storage.reference()
            self._comparisons.look(subject, unchanged=True, held=variable, due=due, source=line)

    def _compile(self) -> events.Compile:
        return events.Compile(
            time_ns=time.monotonic_ns(),
            program=self._number,
            strategy=self._strategy,
            function=self._function,
            cause="new function",
            changed="",
            arguments=[],
            mode="eager",
            trace_ns=0,
            compile_ns=0,
            collectives=[],
            flops=None,
            bytes_accessed=None,
            source=self._source,
            called=modes.chosen_at() or calling_line(),
        )


def _may_drift(variable: StoredVariable) -> TypeGuard[Variable]:
    """Returns whether the copies of a variable should be equal, and may not be."""
    return (
        isinstance(variable, Variable)
        and is_meant_equal(variable)
        and variable.storage.apart
        and is_inexact(variable.dtype)
    )
