"""Memory of all processes and utilization of GPUs, from NVIDIA's management library.

It needs the package `nvidia-ml-py` (`pip install nvidia-ml-py`); without it, or
without an NVIDIA driver, there are no values. NVML numbers GPUs by their PCI bus, CUDA
by speed unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set: that differs only where a
machine has GPUs of several kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import jax

from distlab.cluster._gpus import named_by_environment


class GpuUse(NamedTuple):
    """Memory and utilization of GPUs, in the order of the devices requested."""

    used_bytes: list[int]  # Memory in use on each, by all processes
    utilization: list[float]  # 0 to 1, of NVML's last sampling period


def gpu_use(devices: Sequence[jax.Device]) -> GpuUse | None:
    """Returns NVML's values for devices; None for other devices than GPUs, or without NVML."""
    if not devices or any(device.platform != "gpu" for device in devices):
        return None
    library = _library()
    if library is None:
        return None
    try:
        handles = [_handle(library, device) for device in devices]
        return GpuUse(
            [int(library.nvmlDeviceGetMemoryInfo(handle).used) for handle in handles],
            [library.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in handles],
        )
    except (library.NVMLError, IndexError):
        return None


@cache
def _library() -> Any:
    """Returns the initialised library; None when there is none."""
    try:
        library = import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library


def _handle(library: Any, device: Any) -> Any:
    """Returns NVML's handle of a device: CUDA counts visible GPUs, NVML all."""
    number = int(device.local_hardware_id)
    visible = named_by_environment()
    name = str(number) if visible is None else visible[number]
    if name.isdigit():
        return library.nvmlDeviceGetHandleByIndex(int(name))
    return library.nvmlDeviceGetHandleByUUID(name)
