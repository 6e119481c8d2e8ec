"""A compiled program of an observed function, and the outputs of its steps that are looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple, TypeAlias

import jax

from distlab.devices import jax_internals
from distlab.devices.jax_internals import ConcreteArray
from distlab.events import numbering, sink
from distlab.observing.arguments import Leaf, Path, getter
from distlab.observing.meshes import ProgramMesh, mesh_of, strategy_of
from distlab.step.review.causes import is_inexact
from distlab.step.review.last_results import LastResults

Call: TypeAlias = tuple[Any, Any, Any]
"""The result, the arguments and the keyword arguments of a call."""

Get: TypeAlias = Callable[[Call], Any]
"""Finds an array in a call."""

_MOST_RESULTS: Final = 4
_MOST_NUMBERS: Final = 16
"""Most results, and most numbers of one, that are looked at for NaN."""


class _Found(NamedTuple):
    path: Path
    array: jax.Array


class Program:
    """A compiled program, made after the first call that ran it.

    Attributes:
      number: Its number in events.
      executable: XLA's program, by which it is recognised; None where JAX does not show it.
      described: The arguments of calls that ran it, where they differ for JAX.
      mesh: Its devices.
      strategy: The number of its mesh among the strategies.
      marker: Finds in a call the array whose readiness ends the step; None for none.
    """

    def __init__(
        self,
        executable: Any,
        described: dict[str, Leaf],
        call: Call,
        donated: Collection[tuple[Any, Any]],
        before: Collection[int] | None,
    ) -> None:
        self.number = next(numbering.programs)
        self.executable = executable
        self.described = [described]
        arrays = [
            _Found(path, leaf)
            for path, leaf in jax.tree_util.tree_flatten_with_path(call)[0]
            if type(leaf) is ConcreteArray
        ]
        self.mesh = mesh_of(one.array.sharding for one in arrays)
        outputs = [one for one in arrays if one.path[0].idx == 0]
        # One that the next call may use up, as a state, would often be gone before it is ready.
        kept = [one for one in outputs if (one.array.shape, one.array.dtype) not in donated]
        marking = [kept, outputs]
        if before is not None:  # objects that are changed in place hold outputs
            changed = [one for one in arrays if one.path[0].idx and id(one.array) not in before]
            marking.append(changed)
        self.marker = next(
            (get for found in marking if (get := _marker(found, self.mesh, call)) is not None), None
        )
        small = [one for one in kept if is_inexact(one.array.dtype)]
        small = [one for one in small if 0 < one.array.size <= _MOST_NUMBERS]
        gets = (_getter(one, call) for one in sorted(small, key=lambda one: one.array.size))
        self._small = [get for get in gets if get is not None][:_MOST_RESULTS]
        self.strategy = -1
        self._results: LastResults | None = None

    def begin(self, function: str, source: str, recorder: sink.Recorder) -> None:
        """Emits its mesh, unless the recorder knows it."""
        self.strategy = strategy_of(self.mesh, recorder)
        if self._small:
            positions = range(len(self._small))
            self._results = LastResults(self.strategy, function, source, positions)

    def look(self, call: Call, step: int, called: int, recorder: sink.Recorder) -> None:
        """Has a step watched, and keeps its small results, in which NaN may begin."""
        try:
            if self.marker is not None:
                recorder.watch(self.strategy, step, called, self.marker(call))
            if self._results is not None:
                self._results.take([get(call) for get in self._small])
                self._results.keep(step, recorder)
        except (AttributeError, LookupError, TypeError):
            return  # the result of another program, whose arguments look like this one's


def _marker(found: list[_Found], mesh: ProgramMesh, call: Call) -> Get | None:
    """Returns what finds the smallest array that all devices make."""
    for one in sorted(found, key=lambda one: one.array.nbytes):
        devices = jax_internals.assigned_devices(one.array.sharding)
        if devices == mesh.devices and (get := _getter(one, call)) is not None:
            return get
    return None


def _getter(found: _Found, call: Call) -> Get | None:
    """Returns what finds an array by its path; None where the pytree can't be followed so."""
    try:
        get = getter(found.path)
        return get if get is not None and get(call) is found.array else None
    except Exception:  # noqa: BLE001 - of any class that is registered as a pytree
        return None
