"""Finding devices by name, and setting the number of CPU devices."""

from __future__ import annotations

import subprocess
import sys

import jax
import pytest

import distlab as dl
from distlab.devices import selection
from distlab.errors import BackendStartedError, DeviceError
from tests.devices.programs import finish


@pytest.mark.parametrize(
    "name",
    ["CPU:3", "cpu:3", "/cpu:3", "/device:CPU:3", "/job:worker/replica:0/task:0/device:CPU:3"],
)
def test_a_device_is_found_by_each_of_its_names(name: str) -> None:
    assert selection.find([name]) == (jax.devices()[3],)


def test_a_strategy_takes_device_objects_and_keeps_their_order() -> None:
    strategy = dl.MirroredStrategy([jax.devices()[2], "CPU:0"])
    assert strategy.device_names == ("CPU:2", "CPU:0")


def test_all_devices_are_the_default() -> None:
    assert dl.MirroredStrategy().num_replicas_in_sync == 8


def test_more_replicas_than_devices_is_an_error_with_a_remedy() -> None:
    with pytest.raises(DeviceError, match=r"no device CPU:8.*CPU:0, .*use_cpu_devices\(9\)"):
        dl.MirroredStrategy([f"CPU:{i}" for i in range(9)])


@pytest.mark.parametrize("devices", [["TPU:0"], ["whatever"], [7], [], ["CPU:1", "cpu:1"]])
def test_wrong_devices_are_refused(devices: list[str]) -> None:
    with pytest.raises(DeviceError):
        dl.MirroredStrategy(devices)


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "8"])
def test_a_wrong_number_of_cpu_devices_is_refused(count: int) -> None:
    with pytest.raises(DeviceError, match="at least 1"):
        dl.use_cpu_devices(count)


def test_the_same_number_of_cpu_devices_may_be_asked_for_again() -> None:
    jax.devices()
    dl.use_cpu_devices(8)


def test_cpu_devices_asked_for_too_late_say_so() -> None:
    jax.devices()
    with pytest.raises(BackendStartedError, match=r"already runs with 8 CPU.*restart the kernel"):
        dl.use_cpu_devices(4)


def test_more_cpu_devices_than_a_process_can_have_are_refused() -> None:
    with pytest.raises(DeviceError, match=r"at most 2048 CPU devices.* Got 2049"):
        dl.use_cpu_devices(2_049)


def test_use_cpu_devices_sizes_the_thread_pool_before_jax_starts() -> None:
    program = (
        "import os, distlab as dl\n"
        "dl.use_cpu_devices(5)\n"
        "assert int(os.environ['PJRT_NPROC']) >= 10, os.environ['PJRT_NPROC']\n"
        "import jax\n"
        "assert jax.device_count() == 5\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=120)


def test_importing_distlab_does_not_start_jax() -> None:
    program = (
        "import distlab\n"
        "from distlab.devices import jax_internals\n"
        "with distlab.record(None):\n"
        "    assert not jax_internals.backend_started()\n"
        "distlab.use_cpu_devices(2)\n"
        "assert distlab.MirroredStrategy().num_replicas_in_sync == 2\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=120)


def test_a_platform_that_is_not_there_is_an_error_with_a_remedy() -> None:
    program = """
import distlab as dl
try:
    dl.MirroredStrategy()
except dl.errors.DeviceError as error:
    print("can't start its devices of 'nonsense'" in str(error), "JAX_PLATFORMS=cpu" in str(error))
"""
    assert finish(program, JAX_PLATFORMS="nonsense") == (0, "True True\n")
