"""Finding devices by name, and setting the number of CPU devices."""

from __future__ import annotations

import subprocess
import sys

import jax

import distlab as dl
from distlab.devices import selection


def test_a_device_is_found_by_each_of_its_names() -> None:
    for name in [
        "CPU:3",
        "cpu:3",
        "/cpu:3",
        "/device:CPU:3",
        "/job:worker/replica:0/task:0/device:CPU:3",
    ]:
        assert selection.find([name]) == (jax.devices()[3],)


def test_a_strategy_takes_device_objects_and_keeps_their_order() -> None:
    strategy = dl.MirroredStrategy([jax.devices()[2], "CPU:0"])
    assert strategy.device_names == ("CPU:2", "CPU:0")


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
