"""Devices: choosing CPU ones before JAX starts, and finding them by name after."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable
from typing import TypeAlias

import jax

from distlab import events
from distlab.devices import jax_internals
from distlab.errors import BackendStartedError, DeviceError

DeviceLike: TypeAlias = str | jax.Device
"""A `jax.Device`, or a name such as `"CPU:0"`, `"gpu:1"` or `"/device:CPU:0"`."""

_NAME = re.compile(
    r"^(?:/job:\w+)?(?:/replica:\d+)?(?:/task:\d+)?/?(?:device:)?(\w+):(\d+)$", re.IGNORECASE
)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BUFFER_BYTES = 1 << 30


def use_cpu_devices(count: int) -> None:
    """Makes JAX offer `count` devices that share this machine's CPU.

    Call it before anything starts JAX's devices. It also sets what such
    devices need: XLA's thread pool gets two threads for each (with fewer,
    programs with collectives can block each other for good), and glibc is told
    to keep large buffers, which XLA otherwise maps anew at every step.

    Args:
      count: how many devices, at least 1.

    Raises:
      DeviceError: `count` is not a positive whole number.
      BackendStartedError: JAX has already started with other devices.
    """
    if type(count) is not int or count < 1:
        raise DeviceError(
            f"use_cpu_devices needs a whole number of devices, at least 1, got {count!r}. "
            "Use 8 to follow the guides."
        )
    if jax_internals.backend_started():
        _require_running(count)
        return
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        raise BackendStartedError(
            "XLA_FLAGS sets xla_force_host_platform_device_count, which JAX does not accept "
            f"together with use_cpu_devices({count}). Remove it from XLA_FLAGS."
        )
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", count)
    prepare_cpu_backend()


def prepare_cpu_backend() -> None:
    """Sets what CPU devices need, as long as JAX has not started them.

    `PJRT_NPROC` sizes XLA's thread pool. Collectives of several steps deadlock
    when it has fewer than two threads for each device, so that is the least.
    """
    count = int(getattr(jax.config, "jax_num_cpu_devices", 1))
    if jax_internals.backend_started() or count < 2:
        return
    threads = max(2 * count, os.cpu_count() or 1)
    set_by_user = os.environ.get("PJRT_NPROC", "")
    if not set_by_user.isdigit() or int(set_by_user) < threads:
        os.environ["PJRT_NPROC"] = str(threads)
    _keep_large_buffers()


def give_back_memory() -> None:
    """Gives the operating system what was freed, about 80 MB after a compilation.

    glibc would keep it, because `prepare_cpu_backend` told it to keep large buffers.
    It takes some 20 ms, and does nothing on other libcs.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return
    trim(0)


def available() -> list[jax.Device]:
    """Returns this process's devices of JAX's default platform, starting it if need be."""
    prepare_cpu_backend()
    return list(jax.local_devices())


def find(devices: Iterable[DeviceLike]) -> tuple[jax.Device, ...]:
    """Returns the devices that were named.

    Args:
      devices: names or `jax.Device` objects, all different.

    Raises:
      DeviceError: there is none, one does not exist, or one is named twice.
    """
    if isinstance(devices, str):
        devices = [devices]
    if not isinstance(devices, Iterable):
        raise DeviceError(
            "devices must be a list of names or jax.Device objects, got a "
            f"{type(devices).__name__}. For two CPU devices write ['CPU:0', 'CPU:1']; of a mesh "
            "give list(mesh.devices.flat)."
        )
    found = tuple(_find_one(device) for device in devices)
    if not found:
        raise DeviceError("A strategy needs at least one device, got an empty list.")
    for device in found:
        if found.count(device) > 1:
            raise DeviceError(
                f"Each device can be used once, got {name(device)} twice in "
                f"{[name(d) for d in found]}."
            )
    return found


def name(device: jax.Device) -> str:
    """Returns a device's short name, such as `"CPU:0"`."""
    return f"{device.platform.upper()}:{device.id}"


def describe(device: jax.Device) -> events.Device:
    """Returns a device as events name it."""
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
            f"A device is named like 'CPU:0' or given as a jax.Device, got {device!r}."
        )
    platform, number = match[1].lower(), int(match[2])
    if platform == "cpu" and known[0].platform != "cpu":
        known = list(jax.local_devices(backend="cpu"))
    for candidate in known:
        if candidate.platform == platform and candidate.id == number:
            return candidate
    raise DeviceError(
        f"There is no device {platform.upper()}:{number}; this process has "
        f"{', '.join(map(name, known))}. For more CPU devices call "
        f"distlab.use_cpu_devices({number + 1}) before JAX starts."
    )


def _require_running(count: int) -> None:
    running = jax.local_devices()
    if len(running) == count and running[0].platform == "cpu":
        return
    raise BackendStartedError(
        f"use_cpu_devices({count}) must be called before JAX starts its devices, but JAX "
        f"already runs with {len(running)} {running[0].platform.upper()} device(s). Call it "
        "first thing in the program; in a notebook restart the kernel and run it in the "
        "first cell."
    )


def _keep_large_buffers() -> None:
    """Raises glibc's thresholds for giving memory back; does nothing on other libcs."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _LARGE_BUFFER_BYTES)
