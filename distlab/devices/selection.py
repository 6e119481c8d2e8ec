"""Sets the number of CPU devices before JAX starts, and finds devices by name."""

from __future__ import annotations

import ctypes
import functools
import re
import warnings
from collections.abc import Callable, Iterable
from typing import TypeAlias

import jax

from distlab import events
from distlab.devices import in_flight, jax_internals, thread_pool
from distlab.errors import BackendStartedError, DeviceError
from distlab.text.shown import shown

DeviceLike: TypeAlias = str | jax.Device
"""A `jax.Device`, or a name such as `"CPU:0"`, `"gpu:1"` or `"/device:CPU:0"`."""

_NAME = re.compile(
    r"^(?:worker (\d+) )?(?:/job:\w+)?(?:/replica:\d+)?(?:/task:\d+)?/?(?:device:)?(\w+):(\d+)$",
    re.IGNORECASE,
)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BUFFER_BYTES = 1 << 30


def use_cpu_devices(count: int) -> None:
    """Divides this machine's CPU into `count` JAX devices.

    Call it before JAX starts its devices. It also sizes XLA's thread pool to two
    threads for each device (with fewer, programs with collectives can deadlock), and
    makes glibc keep large buffers, which XLA otherwise maps anew at every step.

    Args:
      count: The number of devices, at least 1.

    Raises:
      DeviceError: `count` is not such a whole number.
      BackendStartedError: JAX has already started with other devices.

    Example:
      >>> import distlab as dl
      >>> dl.use_cpu_devices(8)
      >>> dl.MirroredStrategy().num_replicas_in_sync
      8
    """
    if type(count) is not int or count < 1:
        raise DeviceError(
            f"use_cpu_devices needs a whole number of devices, at least 1, got {shown(count)}. "
            "Use 8 to follow the guides."
        )
    if jax_internals.backend_started():
        _require_running(count)
        return
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)
    prepare_cpu_backend()


def prepare_cpu_backend() -> None:
    """Configures XLA and glibc for several CPU devices, unless JAX has started them."""
    if jax_internals.backend_started():
        _check_thread_pool()
    elif thread_pool.enlarge():
        _keep_large_buffers()


@functools.cache
def _check_thread_pool() -> None:
    """Lets fewer steps wait for one another, with a warning, where XLA has too few threads."""
    devices = jax.local_devices()
    count = len(devices)
    threads = thread_pool.size(count)
    if devices[0].platform != "cpu" or count < 2 or threads >= thread_pool.needed(count):
        return
    in_flight.limit = in_flight.SHORT_POOL_LIMIT
    warnings.warn(
        f"JAX had started {count} CPU devices with {threads} threads before distlab could ask for "
        f"{thread_pool.needed(count)}. Steps that call the host with large arrays "
        "(jax.pure_callback, io_callback) can deadlock, and only "
        f"{in_flight.SHORT_POOL_LIMIT} steps are in flight at a time. Import distlab, or call "
        "distlab.use_cpu_devices, before JAX is first used; or set PJRT_NPROC="
        f"{thread_pool.needed(count)} in the environment.",
        RuntimeWarning,
        stacklevel=2,
    )


def give_back_memory() -> None:
    """Returns memory to the system, about 80 MB after a compilation, which glibc else keeps."""
    trim = _libc_function("malloc_trim")
    if trim is not None:
        trim(0)


def available() -> list[jax.Device]:
    """Returns this process's devices of JAX's default platform, which it starts if needed."""
    prepare_cpu_backend()
    return list(jax.local_devices())


def find(devices: Iterable[DeviceLike]) -> tuple[jax.Device, ...]:
    """Returns devices by their names."""
    if isinstance(devices, str):
        devices = [devices]
    if isinstance(devices, jax.Array) or not isinstance(devices, Iterable):
        raise DeviceError(
            "devices must be a list of names or jax.Device objects, got a "
            f"{type(devices).__name__}. For two CPU devices write ['CPU:0', 'CPU:1']; for those of "
            "a mesh, list(mesh.devices.flat)."
        )
    found = tuple(_find_one(device) for device in devices)
    if not found:
        raise DeviceError(
            f"A strategy needs at least one device, got an empty {type(devices).__name__}. Leave "
            "`devices` out to use all of them."
        )
    for device in found:
        if found.count(device) > 1:
            raise DeviceError(
                f"Each device can be used once, got {name(device)} twice in "
                f"{[name(d) for d in found]}. List each device once."
            )
    return found


def name(device: jax.Device) -> str:
    """Returns a device's short name: `"CPU:0"`, or `"worker 1 CPU:0"` among several workers."""
    if jax.process_count() == 1:
        return f"{device.platform.upper()}:{device.id}"
    return f"worker {device.process_index} {device.platform.upper()}:{_local_number(device)}"


def _local_number(device: jax.Device) -> int:
    """Returns a device's number in its process; JAX numbers those of all processes."""
    if jax.process_count() == 1:
        return int(device.id)
    own = [other.id for other in jax.devices(device.platform) if _together(other, device)]
    return sorted(own).index(device.id)


def _together(one: jax.Device, other: jax.Device) -> bool:
    return one.process_index == other.process_index


def describe(device: jax.Device) -> events.Device:
    """Returns the description of a device that events carry."""
    return events.Device(
        name=name(device),
        kind=device.device_kind,
        platform=device.platform,
        simulated=device.platform == "cpu",
    )


def _find_one(device: DeviceLike) -> jax.Device:
    if isinstance(device, jax.Device):
        return device
    known = available()
    match = _NAME.match(device) if isinstance(device, str) else None
    if match is None:
        raise DeviceError(
            f"A device must be a name such as 'CPU:0' or a jax.Device, got {shown(device)}. "
            "Use one of those that jax.devices() lists."
        )
    worker, platform, number = match[1], match[2].lower(), int(match[3])
    if worker is not None:
        known = [d for d in jax.devices() if d.process_index == int(worker)]
    elif platform == "cpu" and known[0].platform != "cpu":
        known = list(jax.local_devices(backend="cpu"))
    for candidate in known:
        if candidate.platform == platform and _local_number(candidate) == number:
            return candidate
    remedy = (
        f"For more CPU devices call distlab.use_cpu_devices({number + 1}) before JAX starts."
        if platform == "cpu"
        else "Leave the devices out to use all of them, or name CPU devices, such as 'CPU:0'."
    )
    raise DeviceError(
        f"There is no device {match[0]}; this process has "
        f"{', '.join(map(name, available()))}. {remedy}"
    )


def _require_running(count: int) -> None:
    running = jax.local_devices()
    if len(running) == count and running[0].platform == "cpu":
        return
    raise BackendStartedError(
        f"use_cpu_devices({shown(count)}) must be called before JAX starts its devices, but JAX "
        f"already runs with {len(running)} {running[0].platform.upper()} device(s). Call it at "
        "the start of the program; in a notebook, restart the kernel and call it in the first "
        "cell."
    )


def _keep_large_buffers() -> None:
    """Raises glibc's thresholds for releasing memory; does nothing on other libcs."""
    mallopt = _libc_function("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _LARGE_BUFFER_BYTES)


def _libc_function(name: str) -> Callable[..., int] | None:
    """Returns a function of the C library; None where it has no such function."""
    try:
        function: Callable[..., int] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
