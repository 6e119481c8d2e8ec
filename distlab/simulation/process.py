"""The process that compiles, with limits of time and memory; it does not outlive its parent."""

from __future__ import annotations

import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import jax

from distlab.errors import MissingExtraError, SimulationError
from distlab.simulation.child import Failure, Job
from distlab.simulation.counts import Count
from distlab.text.bytes import bytes_text

_LOOK_SECONDS: Final = 0.05
_SHARE_OF_MEMORY: Final = 0.75
_LAST_LINES: Final = 1_000
_CODE: Final = "import sys; from distlab.simulation.child import main; main(sys.argv[1])"
_DEVICES: Final = re.compile(r"--xla_force_host_platform_device_count\S*|--xla_backend_opt\S*")
SETTINGS: Final = (
    *("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable"),
    *("jax_numpy_dtype_promotion", "jax_default_matmul_precision", "jax_use_shardy_partitioner"),
)
"""Settings of JAX that change programs."""


def counted(job: Job, timeout_s: float) -> list[Count]:
    """Returns what a new process counts for each mesh of a job.

    Raises:
      MissingExtraError: A mesh is of TPUs, and libtpu is not installed.
      SimulationError: The process took too long or too much memory, or ended without a result.
    """
    tpu = next((one.topology for one in job.meshes if one.topology), None)
    if tpu is not None and find_spec("libtpu") is None:
        raise MissingExtraError(
            f"{tpu} is compiled by libtpu, which is not installed. Run: pip install libtpu"
        )
    with tempfile.TemporaryDirectory(prefix="distlab-") as name:
        folder = Path(name)
        (folder / "job").write_bytes(pickle.dumps(job))
        found = _result(folder, job, timeout_s)
    if isinstance(found, Failure):
        found.error.add_note(found.note)
        raise found.error
    return found


def _result(folder: Path, job: Job, timeout_s: float) -> Any:
    command = [sys.executable, "-c", _CODE, str(folder)]
    with (folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            command,
            env=_environment(max(one.devices for one in job.meshes)),
            stdin=subprocess.PIPE,  # its end is that of this process
            stdout=output,
            stderr=output,
            start_new_session=True,  # a terminal's Ctrl-C is for this process, which ends it
        )
        try:
            _wait(process, timeout_s)
        finally:
            process.kill()
            process.communicate()
    if process.returncode == 0:
        return pickle.loads((folder / "found").read_bytes())  # noqa: S301 - of our process
    last = (folder / "output").read_text(errors="replace")[-_LAST_LINES:].strip()
    raise SimulationError(
        f"The process of simulate ended with {process.returncode} and no result. Its last lines: "
        f"{last or 'none'}"
    )


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    started = time.monotonic()
    most = _SHARE_OF_MEMORY * _number("/proc/meminfo", r"MemAvailable:\s+(\d+)", math.inf)
    while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
        if time.monotonic() - started > timeout_s:
            raise SimulationError(
                f"The programs were not compiled within {timeout_s:g} s. Pass a larger timeout_s, "
                "fewer or smaller meshes, or a lower most_devices."
            )
        held = _number(f"/proc/{process.pid}/status", r"VmRSS:\s+(\d+)", 0)
        if held > most:
            raise SimulationError(
                f"Compiling took {bytes_text(held * 1024)}, three quarters of the free memory. "
                "Return jax.ShapeDtypeStructs in place of arrays, or simulate smaller meshes."
            )


def _number(file: str, pattern: str, otherwise: float) -> float:
    """Returns a number of a file of Linux, in KiB."""
    try:
        found = re.search(pattern, Path(file).read_text())
    except OSError:  # another system, or the process has ended
        found = None
    return float(found[1]) if found else otherwise


def _environment(devices: int) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    flags = _DEVICES.sub("", os.environ.get("XLA_FLAGS", ""))
    paths = [os.path.abspath(path) for path in sys.path]  # noqa: PTH100 - "" is here
    return found | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count={devices} "
        "--xla_backend_optimization_level=0",
        "PYTHONPATH": os.pathsep.join(paths),
        "TPU_SKIP_MDS_QUERY": "1",
        "DISTLAB_RECORD": "off",
    }


def settings() -> dict[str, Any]:
    """Returns the settings of JAX that change programs."""
    return {name: getattr(jax.config, name) for name in SETTINGS if hasattr(jax.config, name)}
