"""The place where replicas run: their devices, last batches and programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, cast, final
from weakref import WeakSet

from distlab import events
from distlab.devices import selection
from distlab.devices.mesh import ReplicaMesh, replica_mesh
from distlab.devices.selection import DeviceLike
from distlab.errors import DeviceError
from distlab.events import numbering, sink
from distlab.step.programs.cache import ProgramCache
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown
from distlab.user_code import calling_line
from distlab.values.last_batches import LastBatches

places: Final[WeakSet[Place]] = WeakSet()
"""All places of this process."""


@final
class Place:
    """The devices of replicas that run in sync, their last batches, and their programs.

    Most strategies have one place; a `ParameterServerStrategy` has one for each worker.
    """

    def __init__(self, number: int, find_mesh: Callable[[], ReplicaMesh]) -> None:
        self.number = number
        self.batch = LastBatches()
        self.programs = ProgramCache()
        self.eager_programs: dict[tuple[str, str], Any] = {}
        self._find_mesh = find_mesh
        self._elsewhere: dict[int, Any] = {}  # by threads that trace for replicas not here
        places.add(self)

    @classmethod
    def on(
        cls,
        devices: Iterable[DeviceLike],
        name: str,
        model_axis: int = 1,
        *,
        divides: bool = False,
    ) -> Place:
        """Makes a place on these devices, and emits an event that describes it."""
        found = selection.find(devices)
        if not is_positive_count(model_axis) or len(found) % model_axis:
            raise DeviceError(
                "model_axis must divide the number of devices, each replica having so many: got "
                f"{shown(model_axis)} for {len(found)} devices. Leave it out for one device each."
            )
        mesh = replica_mesh(found, model_axis)
        place = cls(next(numbering.strategies), lambda: mesh)
        recorder = sink.recorder()
        if recorder.enabled:
            processes = [device.process_index for device in found]
            recorder.emit(
                events.Strategy(
                    time_ns=time.monotonic_ns(),
                    strategy=place.number,
                    name=name,
                    devices=[selection.name(device) for device in found],
                    processes=processes if len(set(processes)) > 1 else [],
                    source=calling_line(),
                    axes=dict(mesh.mesh.shape) if mesh.model > 1 or divides else {},
                )
            )
        return place

    @property
    def mesh(self) -> ReplicaMesh:
        """The replicas' devices."""
        if self._elsewhere and (other := self._elsewhere.get(threading.get_ident())) is not None:
            return cast(ReplicaMesh, other)
        return self._mesh

    @cached_property
    def _mesh(self) -> ReplicaMesh:
        return self._find_mesh()

    @contextmanager
    def seen_on(self, mesh: Any) -> Iterator[None]:
        """Lets the calling thread trace for replicas of another mesh, which may have no devices."""
        self._elsewhere[threading.get_ident()] = mesh
        try:
            yield
        finally:
            del self._elsewhere[threading.get_ident()]
