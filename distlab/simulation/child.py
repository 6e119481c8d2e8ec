"""The process that compiles: it makes, lowers and reads a program for each mesh."""

from __future__ import annotations

import math
import os
import pickle
import re
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding

from distlab.devices import selection
from distlab.errors import ArgumentTypeError
from distlab.meshes.blocks import axes_text, cuts, full_spec
from distlab.programs.contents import arguments_of, read_program
from distlab.programs.report import lowered_for
from distlab.simulation.asked import NOT_DIVISIBLE, Asked
from distlab.simulation.counts import Count, in_order, on_cpu
from distlab.text.shown import shown
from distlab.user_code import is_users, line_text

_MOST_TEXT: Final = 500
_DEVICES: Final = ("jax_num_cpu_devices", "jax_platforms")
_INDIVISIBLE: Final = re.compile("divisible|evenly divide")


class Job(NamedTuple):
    """A function, and the meshes for which to compile its program."""

    make: bytes  # a pickled function of a mesh, of which `(fn, args)` comes
    meshes: list[Asked]
    axes: list[dict[str, int]]  # that a topology of as many devices takes
    settings: dict[str, Any]  # of JAX


class Failure(NamedTuple):
    """An error of the user's code, and where it was raised."""

    error: BaseException
    note: str


def main(job_folder: str) -> None:
    """Does the job of a folder, and writes what it found, or the error, into it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    folder, mesh = Path(job_folder), None
    found: Any
    try:
        job: Job = pickle.loads((folder / "job").read_bytes())  # noqa: S301 - of the parent
        for name, value in job.settings.items():
            jax.config.update(name, value)
        _keep_devices()
        make = pickle.loads(job.make)  # noqa: S301
        found = []
        for mesh in job.meshes:
            try:
                found.append(_count(make, mesh, job.axes))
            except Exception:
                if not mesh.small:
                    raise
                found.append(Count(mesh.axes))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        found = _failure(error, mesh)
    (folder / "found").write_bytes(pickle.dumps(found))


def _keep_devices() -> None:
    """Starts the devices; modules of the user's that are imported now can't change their number."""
    update: Callable[[str, Any], None] = jax.config.update
    jax.devices()

    def update_others(name: str, value: Any) -> None:
        if name not in _DEVICES:
            update(name, value)

    patched: Any = jax.config
    patched.update = update_others
    patched = selection
    patched.use_cpu_devices = lambda _: None


def _count(make: Callable[[Mesh], Any], asked: Asked, known: list[dict[str, int]]) -> Count:
    mesh = _mesh(asked, known)
    axes = dict(mesh.shape)
    try:
        made = _made(make, mesh)
        undivided = _undivided(*made)
        if undivided:
            return Count(axes, undivided=", ".join(undivided))
        name, lowered, notes = lowered_for(*made)
    except ValueError as error:
        if not _INDIVISIBLE.search(str(error)):
            raise
        return Count(axes, undivided=_words(error))
    contents = in_order(read_program(lowered.compile(), notes)._replace(mesh=axes))
    marks: Any = ((),) * len(contents.collectives)
    if not asked.topology:
        contents, marks = on_cpu(contents, lowered)
    return Count(axes, name, contents, marks)


def _undivided(fn: Any, args: Any, kwargs: Any) -> list[str]:
    """Returns the arguments that the mesh does not divide: `"x[100, 8]: 100 by data 64"`."""
    arrays = [one for one in jax.tree.leaves((args, kwargs)) if hasattr(one, "dtype")]
    found = []
    for argument, array in zip(arguments_of(fn, args, kwargs), arrays, strict=True):
        sharding = getattr(array, "sharding", None)
        if not isinstance(sharding, NamedSharding):
            continue
        axes = dict(sharding.mesh.shape)
        spec = full_spec(sharding.spec, len(array.shape))
        for size, cut, names in zip(array.shape, cuts(spec, axes), spec, strict=True):
            if size % cut:
                by = axes_text({name: axes[name] for name in names})
                found.append(f"{argument.name}{list(array.shape)}: {size} by {by}")
    return found


def _made(make: Callable[[Mesh], Any], mesh: Mesh) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    match make(mesh):
        case (fn, tuple() as args) if callable(fn):
            return fn, args, {}
        case (fn, tuple() as args, dict() as kwargs) if callable(fn):
            return fn, args, kwargs
        case other:
            raise ArgumentTypeError(
                f"make(mesh) must return (fn, args) with a tuple of arguments, got {shown(other)}. "
                "Write return step, (state, batch)."
            )


def _mesh(asked: Asked, known: list[dict[str, int]]) -> Mesh:
    devices: Any = jax.devices()
    if asked.topology:
        from jax.experimental import mesh_utils, topologies

        devices = topologies.get_topology_desc(platform="tpu", topology_name=asked.topology).devices
        alike = [axes for axes in known if math.prod(axes.values()) == len(devices)]
        axes = asked.axes or next(iter(alike), {"data": len(devices)})
        placed = mesh_utils.create_device_mesh(
            tuple(axes.values()), devices, allow_split_physical_axes=True
        )
        return Mesh(placed, tuple(axes))
    placed = np.array(devices[: asked.devices]).reshape(tuple(asked.axes.values()))
    types = asked.types or (AxisType.Auto,) * len(asked.axes)
    return Mesh(placed, tuple(asked.axes), axis_types=types)


def _failure(error: Exception, mesh: Asked | None) -> Failure:
    """Returns an error as one that travels, with the line of the user's that raised it."""
    note = f"Raised in the process of simulate{_line(error)}" + (f", for {mesh}." if mesh else ".")
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # noqa: BLE001 - errors need not be picklable
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return Failure(error, note)


def _words(error: ValueError) -> str:
    text = str(error)
    if text.startswith(NOT_DIVISIBLE):
        return text.removeprefix(NOT_DIVISIBLE)
    return text[:_MOST_TEXT] + _line(error)


def _line(error: Exception) -> str:
    """Returns the innermost line of the user's that led to an error, such as `" at train.py:7"`."""
    lines = [
        line_text(frame.filename, frame.lineno or 0)
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users(frame.filename)
    ]
    return f" at {lines[-1]}" if lines else ""


def _end_with_parent() -> None:
    """Ends this process when the other end of its input closes, whatever it does."""
    while os.read(0, 1 << 10):
        pass
    os._exit(1)
