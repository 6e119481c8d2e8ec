"""Compares the replicas' copies of states that each replica updates by itself.

Programs in which no replica does so have nothing to compare and cost nothing. The others wait for
their step at the few moments of a comparison: after steps 1, 2, 4, 8 and so on.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any, Final, final

import jax
import numpy as np

from distlab import events
from distlab.devices import jax_internals
from distlab.devices.jax_internals import ConcreteArray
from distlab.events import sink
from distlab.step.arguments.leaves import Leaf
from distlab.step.programs.program import Program
from distlab.step.review.causes import is_key
from distlab.step.review.doubts import found_in
from distlab.step.review.updates import StatePart
from distlab.values import stacks
from distlab.variables.variable import Variable

_MOST_COMPARED: Final = 8
_MOST_NUMBERS: Final = 1 << 20
_MOST_RENEWED: Final = 8


def examined(
    program: Program, strategy: int, leaves: Sequence[Any], result: Any
) -> list[events.Doubt]:
    """Returns the doubts about a program that ran for the first time, and watches its copies."""
    if program.spmd.replicas == 1:
        return []
    arguments = [
        (leaf, array)
        for leaf, array in zip(program.arguments.leaves, leaves, strict=True)
        if leaf.role != "static"
    ]
    equal = frozenset(n for n, (leaf, array) in enumerate(arguments) if _are_equal(leaf, array))
    found = found_in(program.spmd, program.function, equal)
    watch = CopiesWatch(program, strategy, found.variables, found.states)
    arrays = jax.tree.leaves(result)
    program.alike = frozenset(found.alike)
    program.alike_leaves = [watch.results[position] for position in found.alike]
    for position in program.alike_leaves:
        stacks.remember_equal_rows(arrays[position])
    for position in found.renewed:
        stacks.remember_meant_equal(arrays[watch.results[position]])
    if found.variables or found.states:
        program.copies = watch
    return found.doubts


def _are_equal(leaf: Leaf, array: Any) -> bool:
    """Returns whether an argument's components are or should be equal, as far as it is known."""
    if leaf.role != "split" or (type(array) is ConcreteArray and stacks.is_meant_equal(array)):
        return leaf.role == "split"
    if not is_key(leaf) or array.is_deleted():
        return False
    rows = jax_internals.pieces(jax_internals.plain(array))
    if len(rows) < len(array):  # those of other processes are not known here
        return False
    first, *others = map(np.asarray, rows)
    return all(np.array_equal(first, other) for other in others)


@final
class Comparisons:
    """Comparisons of copies, and their reports."""

    def __init__(self, program: int, strategy: int) -> None:
        self._program, self._strategy = program, strategy
        self._renewed: dict[str, int] = {}
        self.step = -1

    def look(
        self, subject: str, *, unchanged: bool, held: Any, due: bool, source: str = ""
    ) -> bool:
        """Compares the copies of one state, if that is due or somebody else has assigned it."""
        if unchanged:
            if due:
                self._report(subject, *compared(held), source)
            return True
        self._renewed[subject] = self._renewed.get(subject, 0) + 1
        differing, largest = compared(held)
        if not differing:
            # They meet again, as where replicas train apart for some steps: that is by design.
            self._report(subject, differing, largest, source)
        return bool(differing) and self._renewed[subject] <= _MOST_RENEWED

    def _report(self, subject: str, differing: list[int], largest: float, source: str) -> None:
        sink.recorder().emit(
            events.CopiesCompared(
                time_ns=time.monotonic_ns(),
                step=self.step,
                strategy=self._strategy,
                program=self._program,
                subject=subject,
                differing=differing,
                largest=largest,
                source=source,
            )
        )


@final
class CopiesWatch:
    """Comparisons of the copies of one program's states as its steps go on."""

    def __init__(
        self,
        program: Program,
        strategy: int,
        variables: dict[str, Variable],
        states: dict[str, StatePart],
    ) -> None:
        self._comparisons = Comparisons(program.number, strategy)
        self._calls = 0
        self._variables = dict(list(variables.items())[:_MOST_COMPARED])
        self._states = dict(list(states.items())[:_MOST_COMPARED])
        self._kept: dict[str, weakref.ref[Any] | None] = {}
        self._data: dict[int, weakref.ref[Any]] = {}
        leaves = program.arguments.leaves
        self._arguments = [n for n, leaf in enumerate(leaves) if leaf.role != "static"]
        static = program.spmd.traces[0].static
        self.results = [n for n, fixed in enumerate(static) if fixed is None]

    def look(self, leaves: Sequence[Any]) -> None:
        """Compares what the last step left, before the next one."""
        due = self._calls > 0 and self._calls & (self._calls - 1) == 0
        renewed = self._renew_data(leaves)
        if not self._calls:
            return
        for subject, variable in list(self._variables.items()):
            self._look_at(subject, variable.storage.holds(self._kept[subject]), variable, due)
        for subject, state in list(self._states.items()):
            array = leaves[self._arguments[state.argument]]
            kept = self._kept[subject]
            if type(array) is ConcreteArray and not array.is_deleted():
                same = kept is not None and kept() is array
                self._look_at(subject, same, array, due and not renewed.isdisjoint(state.data))

    def keep(self, result: Any, step: int) -> None:
        """Notes what a step left."""
        self._comparisons.step = step
        for subject, variable in list(self._variables.items()):  # threads may run one program
            self._kept[subject] = variable.storage.reference()
        if self._states:
            arrays = jax.tree.leaves(result)
            for subject, state in list(self._states.items()):
                array = arrays[self.results[state.result]]
                self._kept[subject] = weakref.ref(array)
        self._calls += 1

    def _renew_data(self, leaves: Sequence[Any]) -> set[int]:
        """Returns which data the next step receives and the last one did not."""
        renewed = set()
        for position in {position for state in self._states.values() for position in state.data}:
            array = leaves[self._arguments[position]]
            before = self._data.get(position)
            if before is None or before() is not array:
                renewed.add(position)
                self._data[position] = weakref.ref(array)
        return renewed

    def _look_at(self, subject: str, unchanged: bool, held: Any, due: bool) -> None:
        if not self._comparisons.look(subject, unchanged=unchanged, held=held, due=due):
            self._variables.pop(subject, None)
            self._states.pop(subject, None)


def compared(held: Any) -> tuple[list[int], float]:
    """Returns which copies differ from the first one, and by how much of its largest number."""
    if isinstance(held, Variable):
        copies = list(held.storage.copies().items())
    elif stacks.has_equal_rows(held):
        return [], 0.0
    else:
        copies = list(enumerate(jax_internals.pieces(held)))
    (_, first), *others = [(replica, _numbers(copy)) for replica, copy in copies]
    differing = [replica for replica, copy in others if copy.tobytes() != first.tobytes()]
    size = float(np.max(np.abs(first), initial=0.0)) or 1.0
    gaps = [float(np.max(np.abs(copy - first), initial=0.0)) for _, copy in others]
    largest = max(gaps, default=0.0) / size
    return differing, largest if np.isfinite(largest) else 0.0


def _numbers(copy: jax.Array) -> np.ndarray:
    """Returns the numbers of one copy; of a large one about a million."""
    stride = max(1, copy.size // _MOST_NUMBERS)
    part = copy if stride == 1 else copy.ravel()[::stride]
    return np.asarray(part).astype(np.promote_types(part.dtype, np.float32), copy=False)
