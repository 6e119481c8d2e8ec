"""The process that compiles: it makes, lowers and reads a program for each mesh."""

from __future__ import annotations

import math
import os
import pickle
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from distlab.devices import selection
from distlab.errors import ArgumentTypeError
from distlab.programs.contents import arguments_of, read_program
from distlab.programs.report import lowered_for
from distlab.simulation.asked import Asked, IndivisibleError, check_divided
from distlab.simulation.counts import Count, in_order, on_cpu
from distlab.step.arguments.names import is_array
from distlab.text.shown import shown
from distlab.user_code import is_users, line_text

_LOOK_SECONDS: Final = 1.0
_MOST_TEXT: Final = 500
_DEVICES: Final = ("jax_num_cpu_devices", "jax_platforms")
_INDIVISIBLE: Final = re.compile("divisible|evenly divide")


class Job(NamedTuple):
    """A function, and the meshes for which to compile its program."""

    make: bytes  # a pickled function of a mesh, of which `(fn, args)` comes
    meshes: list[Asked]
    axes: list[dict[str, int]]  # that a topology of as many devices takes
    settings: dict[str, Any]  # of JAX


def main(parent: int) -> None:
    """Does the job on standard input, and writes the counts, or the error, to standard output."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with suppress(OSError):  # on Linux: where memory runs out, this process is killed first
        Path("/proc/self/oom_score_adj").write_text("1000")
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # the user's code may print
    mesh = None
    found: Any = []
    try:
        job: Job = pickle.load(sys.stdin.buffer)  # noqa: S301 - of the parent
        for name, value in job.settings.items():
            jax.config.update(name, value)
        _keep_devices()
        make = pickle.loads(job.make)  # noqa: S301
        for mesh in job.meshes:
            try:
                found.append(_count(make, mesh, job.axes))
            except Exception:
                if not mesh.small:
                    raise
                found.append(Count(mesh.axes))
    except Exception as error:  # noqa: BLE001 - the parent raises it
        at = f", for {mesh}" if mesh else ""
        found = _picklable(error)
        found.add_note(f"Raised in the process of simulate{_line(error)}{at}.")
    output.write(pickle.dumps(found))
    output.close()


def _keep_devices() -> None:
    """Starts the devices; modules of the user's that are imported now can't change their number."""
    jax.devices()
    config: Any = jax.config
    own: Any = selection
    update = config.update
    config.update = lambda name, value: name in _DEVICES or update(name, value)
    own.use_cpu_devices = lambda _: None


def _count(make: Callable[[Mesh], Any], asked: Asked, known: list[dict[str, int]]) -> Count:
    mesh = _mesh(asked, known)
    count = Count(dict(mesh.shape), asked.topology)
    try:
        made = _made(make, mesh)
        _check_divided(*made)
        name, lowered, notes = lowered_for(*made)
    except IndivisibleError as error:
        return count._replace(undivided=str(error))
    except ValueError as error:
        if not _INDIVISIBLE.search(str(error)):
            raise
        return count._replace(undivided=str(error)[:_MOST_TEXT] + _line(error))
    contents = in_order(read_program(lowered.compile(), notes)._replace(mesh=count.axes))
    marks: Any = ((),) * len(contents.collectives)
    if not asked.topology:
        contents, marks = on_cpu(contents, lowered)
    return count._replace(name=name, contents=contents, marks=marks)


def _check_divided(fn: Any, args: Any, kwargs: Any) -> None:
    arrays = filter(is_array, jax.tree.leaves((args, kwargs)))
    check_divided(
        (argument.name, array.shape, array.sharding)
        for argument, array in zip(arguments_of(fn, args, kwargs), arrays, strict=True)
        if isinstance(getattr(array, "sharding", None), NamedSharding)
    )


def _made(make: Callable[[Mesh], Any], mesh: Mesh) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    match make(mesh):
        case (fn, tuple() as args, *kwargs) if callable(fn):
            return fn, args, kwargs[0] if kwargs else {}
        case other:
            raise ArgumentTypeError(
                f"make(mesh) must return (fn, args) with a tuple of arguments, got {shown(other)}. "
                "Write return step, (state, batch)."
            )


def _mesh(asked: Asked, known: list[dict[str, int]]) -> Mesh:
    if not asked.topology:
        placed = np.array(jax.devices()[: asked.devices]).reshape(tuple(asked.axes.values()))
        return Mesh(placed, tuple(asked.axes), axis_types=asked.types)
    from jax.experimental import mesh_utils, topologies

    devices = topologies.get_topology_desc(platform="tpu", topology_name=asked.topology).devices
    alike = [axes for axes in known if math.prod(axes.values()) == len(devices)]
    axes = asked.axes or next(iter(alike), {"data": len(devices)})
    placed = mesh_utils.create_device_mesh(
        tuple(axes.values()), devices, allow_split_physical_axes=True
    )
    return Mesh(placed, tuple(axes))


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # noqa: BLE001 - errors need not be picklable
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _line(error: Exception) -> str:
    """Returns the innermost line of the user's that led to an error, such as `" at train.py:7"`."""
    lines = [
        line_text(frame.filename, frame.lineno or 0)
        for frame in traceback.extract_tb(error.__traceback__)
        if is_users(frame.filename)
    ]
    return f" at {lines[-1]}" if lines else ""


def _end_with(parent: int) -> None:
    """Ends this process when its parent ends, whatever it does."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
