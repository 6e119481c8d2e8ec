"""Checkpoints of several processes: all take part, the chief writes, and each one restores."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import jax
import msgspec
import numpy as np
from jax.sharding import NamedSharding, Sharding

from distlab.devices.combining import whole_of
from distlab.devices.key_data import is_key, through_data
from distlab.errors import WorkerError
from distlab.integrations.orbax.entry import Entry, Saved
from distlab.processes import group
from distlab.processes.faults import Fault, fault_of, raise_fault
from distlab.processes.group import ProcessGroup
from distlab.threads import Thread, working

_OF_EACH_WORKER: Final = "workers"
"""The `dtype` of a position that is a list, with the entry of each worker's iterator."""

_MEETING_SECONDS: Final = 300.0
"""The longest wait for the others to save, too."""
_WRITING_SECONDS: Final = 3600.0
"""The longest wait until the chief has written."""

IN_BACKGROUND: Final = not (3, 12) <= sys.version_info[:3] < (3, 12, 2)
"""False on a Python that starts no thread for Orbax once the main thread has ended."""

_running: set[Job] = set()


@final
class Job:
    """A thread that calls a function once. The process does not end before it has."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._error: BaseException | None = None
        self._thread = Thread(self._run, name="distlab-checkpoint", daemon=False)
        _running.add(self)
        working.add(self._thread)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the end; raises what the function raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised again by `wait`
            self._error = error
        finally:
            _running.discard(self)


def _finish() -> None:
    for job in list(_running):
        job.wait()


# After this, and before handlers of `atexit`, Python starts no thread for Orbax any more, whose
# own asynchronous saves are lost there.
_register: Any = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_finish)


def is_writer() -> bool:
    """Returns whether this process writes checkpoints: the chief, or the only one."""
    processes = group.current()
    return processes is None or processes.is_chief


def writing(write: Callable[[], None]) -> Callable[[], None]:
    """Returns this process's part in a save: the chief writes, the others wait for the outcome.

    All must call it in the same order. The chief waits for nobody; its error is raised on all.
    """
    processes = group.current()
    if processes is None:
        return write
    place = f"checkpoint {processes.next_number('checkpoints')}"

    def wait_for_chief() -> None:
        text = processes.from_chief(place, None, _WRITING_SECONDS)
        fault = msgspec.json.decode(text, type=Fault | None)
        if fault is not None:
            raise_fault(fault, processes.workers[0])

    def write_and_publish() -> None:
        fault = None
        try:
            write()
        except Exception as error:
            fault = fault_of(error)
            raise
        finally:
            processes.from_chief(place, msgspec.json.encode(fault).decode())

    return write_and_publish if processes.is_chief else wait_for_chief


def with_all_positions(
    state: Mapping[str, Saved], encode: Callable[[Any], Any]
) -> dict[str, Saved]:
    """Returns a state with the positions of all workers' iterators; one where they are equal."""
    processes = group.current()
    own = {name: saved.entry for name, saved in state.items() if saved.entry.kind == "position"}
    if processes is None or not own:
        return dict(state)
    text = msgspec.json.encode(own, enc_hook=encode).decode()
    found: list[dict[str, Entry]] = [
        msgspec.json.decode(each, type=dict[str, Entry])
        for each in _exchanged(processes, "positions", text)
    ]
    positions = {
        name: _one_or_all([each.get(name, entry) for each in found]) for name, entry in own.items()
    }
    return {**state, **{name: Saved(entry) for name, entry in positions.items()}}


def _one_or_all(entries: list[Entry]) -> Entry:
    if all(entry == entries[0] for entry in entries):
        return entries[0]
    return Entry("position", dtype=_OF_EACH_WORKER, value=msgspec.to_builtins(entries))


def own_entry(entry: Entry) -> Entry:
    """Returns this process's own entry of a position that each worker has."""
    if entry.dtype != _OF_EACH_WORKER:
        return entry
    processes = group.current()
    index = 0 if processes is None else processes.index
    return msgspec.convert(entry.value[index], Entry)


def workers_fault(entry: Entry) -> str:
    """Returns why the positions of each worker can't be restored here; empty where they can."""
    if entry.dtype != _OF_EACH_WORKER:
        return ""
    processes = group.current()
    here = 1 if processes is None else processes.count
    saved = len(entry.value)
    if saved == here:
        return ""
    return (
        f"has a position of its own on each worker, of which {saved} were saved and there are "
        f"{here} now"
    )


def same_on_all_workers(arrays: list[np.ndarray]) -> bool:
    """Returns whether all arrays, and those that the other processes pass, have the same bytes."""
    first = arrays[0].tobytes()  # so that NaN equals NaN
    same = all(array.tobytes() == first for array in arrays[1:])
    processes = group.current()
    if processes is None:
        return same
    text = hashlib.sha256(first).hexdigest() if same else ""
    everyone = set(_exchanged(processes, "components", text))
    return len(everyone) == 1 and everyone != {""}


def on_host(array: Any) -> np.ndarray:
    """Returns a copy of an array in host memory; all processes must call it for a divided one."""
    if isinstance(array, jax.Array) and not (
        array.is_fully_addressable or array.is_fully_replicated
    ):
        array = whole_of(array)
    return np.array(array)


def placed(value: Any, sharding: Sharding) -> jax.Array:
    """Places an array that all processes hold alike. `device_put` would compare the processes'."""
    if sharding.is_fully_addressable:
        return jax.device_put(value, sharding)
    if isinstance(value, jax.Array) and is_key(value):
        assert isinstance(sharding, NamedSharding)
        return through_data(lambda data: placed(data, sharding), value)
    host = np.asarray(value)
    host = host.astype(jax.dtypes.canonicalize_dtype(host.dtype), copy=False)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def _exchanged(processes: ProcessGroup, what: str, text: str) -> list[str]:
    try:
        return processes.exchange(f"checkpoint {what}", text, _MEETING_SECONDS)
    except WorkerError as error:
        error.add_note(f"The {what} of all workers are saved together: call save on each of them.")
        raise
