"""A step of a strategy, rebuilt for another number of replicas than it ran on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, final

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

from distlab.devices.mesh import AXIS, MODEL
from distlab.errors import ArgumentValueError, UnsupportedError
from distlab.exported import jax_export
from distlab.meshes.blocks import axes_text
from distlab.simulation.asked import Asked, IndivisibleError, check_divided
from distlab.step.programs.place import places
from distlab.step.programs.program import Program
from distlab.step.programs.spmd import SpmdFunction
from distlab.values.checks import function_name
from distlab.variables.remote_storage import RemoteStorage
from distlab.variables.variable import Variable


def program_of(fn: Callable[..., Any]) -> Program | None:
    """Returns the program that a strategy compiled last of a function; None for none."""
    found = [program for place in list(places) if (program := place.programs.newest(fn))]
    return max(found, key=lambda one: one.number, default=None)


def steps() -> dict[str, tuple[Callable[..., Any], dict[str, int]]]:
    """Returns the functions that strategies have run and that are still there, by name.

    With each come the axes of its mesh. Of functions of one name it is the newest.
    """
    programs = [program for place in list(places) for program in place.programs.all()]
    found = {}
    for program in sorted(programs, key=lambda one: one.number):
        fn, host = program.fn(), program.host()
        if program.compiled is not None and fn is not None and host is not None:
            found[program.function] = fn, dict(host.mesh.mesh.shape)
    return found


@final
class Rebuilt:
    """A step for several numbers of replicas, as a function of their mesh that can be pickled."""

    def __init__(self, fn: Callable[..., Any], program: Program, meshes: Sequence[Asked]) -> None:
        self._name = function_name(fn)
        self._programs: dict[Any, Any] = {}
        for one in meshes:
            at = _platform(one), *one.axes.items()
            try:
                self._programs[at] = _exported(fn, program, one)
            except IndivisibleError as error:
                self._programs[at] = error
            except Exception:  # of a small mesh: then there is no program for it
                if not one.small:
                    raise

    def __call__(self, mesh: Mesh) -> Any:
        """Returns the step and the shapes of its arguments, by name.

        Raises:
          IndivisibleError: The replicas do not divide a variable that lies in parts.
        """
        found = self._programs[mesh.devices.flat[0].platform, *mesh.shape.items()]
        if isinstance(found, IndivisibleError):
            raise found
        written, names, results = found
        exported = jax.export.deserialize(bytearray(written))
        arrays = [
            jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=sharding)
            for aval, sharding in zip(
                exported.in_avals, exported.in_shardings_jax(mesh), strict=True
            )
        ]

        def step(**given: Any) -> Any:
            outputs = exported.call([given[name] for name in names])
            return dict(zip(results, outputs, strict=True))

        step.__name__ = self._name
        # Which also names the devices of a step without arguments.
        placed = dict(zip(results, exported.out_shardings_jax(mesh), strict=True))
        return jax.jit(step, out_shardings=placed), (), dict(zip(names, arrays, strict=True))


def _exported(
    fn: Callable[..., Any], program: Program, asked: Asked
) -> tuple[bytes, list[str], list[str]]:
    """Returns the program of a step over a mesh, and the names of its arrays and results."""
    axes = asked.axes
    host: Any = program.host()
    read, written = program.spmd.read, program.spmd.written
    if (
        host is None
        or host.mesh.shared
        or any(isinstance(one.storage, RemoteStorage) for one in (*read, *written))
    ):
        raise UnsupportedError(
            "A simulated step must be one that MirroredStrategy ran in this process, got one of "
            "several processes, or of one that ended."
        )
    sizes = dict(host.mesh.mesh.shape)
    if sizes | {AXIS: axes.get(AXIS)} != axes:
        raise ArgumentValueError(
            f"{function_name(fn)} runs on {axes_text(sizes)}, of which only replica may be another "
            f"number, got {asked}. Write {{'replica': 64}}."
        )
    mesh = _Replicas(axes)
    arguments = program.arguments.over(mesh.replicas)
    with host.place.seen_on(mesh):
        spmd = SpmdFunction(fn, arguments, host)
    shapes = [*map(mesh.variable, spmd.read), *map(mesh.leaf, spmd.leaves)]
    count = len(spmd.read)

    def step(arrays: list[Any]) -> Any:
        return spmd(arrays[:count], arrays[count:])

    out = [NamedSharding(mesh.mesh, spec) for spec in spmd.out_specs()]
    names = [one.name for one in spmd.read] + [leaf.label for leaf in spmd.leaves]
    rest = len(out) - spmd.computed - len(spmd.written)
    results = [f"result {n}" for n in range(spmd.computed)]
    results += [one.name for one in spmd.written] + [f"operand {n}" for n in range(rest)]
    jitted = jax.jit(step, out_shardings=out)
    with host.place.seen_on(mesh):
        exported = jax_export().export(jitted, platforms=(_platform(asked),))(shapes)
    return bytes(exported.serialize()), _distinct(names), _distinct(results)


def _platform(asked: Asked) -> str:
    return "tpu" if asked.topology else "cpu"


def _distinct(names: list[str]) -> list[str]:
    return [
        name if names.index(name) == n else f"{name} ({names[:n].count(name)})"
        for n, name in enumerate(names)
    ]


@final
class _Replicas:
    """Replicas without devices: what tracing asks of a `ReplicaMesh`."""

    shared = False

    def __init__(self, axes: dict[str, int]) -> None:
        self.replicas, self.model = axes[AXIS], axes.get(MODEL, 1)
        auto = (AxisType.Auto,) * len(axes)  # JAX 0.12 takes Explicit where nothing is said
        self.mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=auto)
        self.by_process = (tuple(range(self.replicas)),)
        self.names = tuple(f"replica {n}" for n in range(self.replicas))

    def seen_by_a_replica(self) -> AbstractContextManager[None]:
        manual = self.mesh.update_axis_types({AXIS: AxisType.Manual})
        return jax.sharding.use_abstract_mesh(manual)

    def variable(self, one: Variable) -> jax.ShapeDtypeStruct:
        """Returns the array of a variable over all replicas."""
        layout = one.storage.layout
        rows = (self.replicas,) if layout.partition.of_rows else ()
        spec = layout.spec or layout.partition.spec
        shape = (*rows, *one.shape)
        return self._placed(one.name, shape, np.dtype(one.dtype), spec)

    def leaf(self, leaf: Any) -> jax.ShapeDtypeStruct:
        """Returns the array of an argument over all replicas."""
        first, spec = leaf.shapes[0], leaf.partition.spec
        shape = (self.replicas, *first) if leaf.partition.of_rows else first
        if leaf.role == "parts":
            shape = (first[0] * self.replicas, *first[1:])
        return self._placed(leaf.label, shape, leaf.dtype, spec)

    def _placed(self, name: str, shape: Any, dtype: Any, spec: Any) -> jax.ShapeDtypeStruct:
        sharding = NamedSharding(self.mesh, spec)
        check_divided([(name, shape, sharding)])
        return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
