"""`simulate`: counts a program for meshes that this machine does not have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax

from distlab.errors import ArgumentTypeError
from distlab.simulation import process, replicas
from distlab.simulation.asked import Asked, asked
from distlab.simulation.child import Job
from distlab.simulation.counts import Count
from distlab.simulation.extrapolation import basis, extrapolated
from distlab.simulation.pickling import pickled
from distlab.simulation.report import SimulatedMesh, Simulation
from distlab.text.shown import shown

SETTINGS: Final = (
    *("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable"),
    *("jax_numpy_dtype_promotion", "jax_default_matmul_precision", "jax_use_shardy_partitioner"),
)
"""Settings of JAX that change programs."""


def simulate(
    make: Callable[..., Any],
    meshes: Sequence[Any],
    link_speeds: Mapping[str, float] | None = None,
    *,
    most_devices: int = 256,
    timeout_s: float = 300.0,
) -> Simulation:
    """Counts what a program would hold and send on meshes that you don't have; nothing runs.

    A separate process compiles the program for as many simulated CPU devices, or for TPUs, with
    libtpu but without their hardware. Memory of arguments and outputs is exact, and so are bytes of
    the collectives that the program calls and of sums; the others are marked.

    Args:
      make: A function of a `jax.sharding.Mesh` that returns `(fn, args)`: a function as
        `distlab.program` takes it, and a tuple of its arguments. Use `jax.ShapeDtypeStruct` with a
        sharding on the mesh for arrays. It travels to the process: it must not close over arrays'
        devices or another mesh. Or a function that `strategy.run` has run here: it is traced again
        for the replicas of `{"replica": 64}`, each with arguments of the same shapes as before.
      meshes: Axes and sizes, such as `{"data": 64, "model": 4}`, for simulated devices; a TPU
        topology, such as `"v5e:16x16"`, which takes the axes of the mesh of as many devices in this
        list, else one axis `data`; or `("v5e:16x16", {"data": 256})`. An `AbstractMesh` has axis
        types, too; those of the others are `Auto`.
      link_speeds: Bytes per second from a device along each axis: `{"data": 45e9}`. With it, times
        of the collectives are modelled: bytes by speed, one after the other, without latencies.
      most_devices: Devices up to which simulated meshes are compiled directly. Larger ones are
        extrapolated from smaller ones whose axes are at least 2, if another one is predicted
        exactly; else they are compiled all the same.
      timeout_s: Seconds that a process may take.

    Returns:
      The program on each mesh: printed or displayed, a table.

    Raises:
      ArgumentTypeError: `make` is no function, does not travel, or does not return `(fn, args)`;
        or `meshes` is no list.
      ArgumentValueError: A mesh is invalid.
      MissingExtraError: A topology needs libtpu, or `make`, which stands in a notebook or script,
        cloudpickle.
      SimulationError: The process took too long or too much memory.
      Exception: What `make` raised, with a note of the line and the mesh.

    Example:
      >>> import jax, jax.numpy as jnp, distlab as dl
      >>> from jax.sharding import NamedSharding, PartitionSpec as P
      >>> def make(mesh):
      ...     def shape(*sizes, spec=P()):
      ...         return jax.ShapeDtypeStruct(sizes, "float32", sharding=NamedSharding(mesh, spec))
      ...     def step(w, x):
      ...         return w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
      ...     return jax.jit(step), (shape(16, 4), shape(1024, 16, spec=P("data")))
      >>> found = dl.simulate(make, [{"data": 4}, {"data": 64}])
      >>> [(one.devices, one.memory.argument_bytes, one.sent()) for one in found]
      [(4, 16640, {'data': {'all-reduce': 384}}), (64, 1280, {'data': {'all-reduce': 504}})]
    """
    if not callable(make):
        raise ArgumentTypeError(
            f"simulate() needs a function of a mesh, got {shown(make)}. Write "
            "def make(mesh): return step, (state, batch)."
        )
    wanted = asked(meshes)
    speeds = {axis: float(speed) for axis, speed in (link_speeds or {}).items()}
    program = replicas.program_of(make)

    def travelling(of: list[Asked]) -> bytes:
        return pickled(make if program is None else replicas.Rebuilt(make, program, of))

    counts = _counts(travelling, wanted, most_devices, timeout_s)
    name = next((count.name for count in counts if count.name), "program")
    return Simulation(name, [SimulatedMesh(name, count, speeds) for count in counts])


def _counts(
    make: Callable[[list[Asked]], bytes], wanted: list[Asked], most_devices: int, timeout_s: float
) -> list[Count]:
    axes = [one.axes for one in wanted if not one.topology]
    settings = {name: getattr(jax.config, name) for name in SETTINGS if hasattr(jax.config, name)}

    def count(asked: list[Asked]) -> Iterator[Count]:
        job = asked and Job(make(asked), asked, axes, settings)
        return iter(process.counted(job, timeout_s) if job else [])

    bases = [None if one.topology else basis(one.axes, most_devices) for one in wanted]
    small = [
        [one._replace(axes=axes, small=True) for axes in base.meshes] if base else [one]
        for one, base in zip(wanted, bases, strict=True)
    ]
    first = count([mesh for group in small for mesh in group])
    groups = [[next(first) for _ in group] for group in small]
    found = [
        extrapolated(base, group) if base else group[0]
        for base, group in zip(bases, groups, strict=True)
    ]
    again = count([one for one, at in zip(wanted, found, strict=True) if at is None])
    return [next(again) if at is None else at for at in found]
