"""The mesh on which an observed program runs, as the strategy of its events."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import jax
from jax.sharding import NamedSharding

from distlab.devices import jax_internals, selection
from distlab.events import Strategy, numbering, sink
from distlab.user_code import calling_line


class ProgramMesh(NamedTuple):
    """The devices of a program in the mesh's order, and the sizes of its axes by name."""

    devices: tuple[jax.Device, ...]
    axes: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """Its name on pages: `Mesh(data=4, model=2)`, or that of its only device."""
        if len(self.devices) == 1:
            return selection.name(self.devices[0])
        sizes = ", ".join(f"{name}={size}" for name, size in self.axes)
        return f"Mesh({sizes})" if sizes else f"{len(self.devices)} devices"


def mesh_of(shardings: Iterable[Any]) -> ProgramMesh:
    """Returns the mesh of arrays that one program takes and makes: that of the most devices."""
    found = ProgramMesh((), ())
    for sharding in shardings:
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, jax.sharding.Mesh):
            devices = tuple(sharding.mesh.devices.flat)
            axes = tuple((str(axis), size) for axis, size in sharding.mesh.shape.items())
        else:
            devices, axes = jax_internals.assigned_devices(sharding), ()
        if (len(devices), len(axes)) > (len(found.devices), len(found.axes)):
            found = ProgramMesh(devices, axes)
    return found if found.devices else ProgramMesh((jax.local_devices()[0],), ())


_lock: Final = threading.RLock()
_numbers: Final[dict[ProgramMesh, int]] = {}
_defined: weakref.WeakKeyDictionary[sink.Recorder, set[int]] = weakref.WeakKeyDictionary()


def mesh_on(devices: Iterable[jax.Device]) -> ProgramMesh:
    """Returns the newest mesh on exactly these devices; one without axes where there is none."""
    wanted = tuple(devices)
    with _lock:
        found = [mesh for mesh in _numbers if {*mesh.devices} == {*wanted}]
    return found[-1] if found else ProgramMesh(wanted, ())


def strategy_of(mesh: ProgramMesh, recorder: sink.Recorder) -> int:
    """Returns the number of a mesh among the strategies, which a recorder's events define once."""
    with _lock:
        number = _numbers.get(mesh)
        if number is None:
            number = _numbers[mesh] = next(numbering.strategies)
        defined = _defined.setdefault(recorder, set())
        if number in defined:
            return number
        defined.add(number)
    processes = [device.process_index for device in mesh.devices]
    recorder.emit(
        Strategy(
            time_ns=time.monotonic_ns(),
            strategy=number,
            name=mesh.name,
            devices=[selection.name(device) for device in mesh.devices],
            processes=processes if len(set(processes)) > 1 else [],
            source=calling_line(),
            form="mesh",
            axes=dict(mesh.axes),
        )
    )
    return number
