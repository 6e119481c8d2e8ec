"""The process that compiles, with a limit of time; it does not outlive its parent."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from importlib.util import find_spec
from typing import Final

from distlab.errors import MissingExtraError, SimulationError
from distlab.simulation.child import Job
from distlab.simulation.counts import Count

_LAST_LINES: Final = 1_000
_CODE: Final = "import sys; from distlab.simulation.child import main; main(int(sys.argv[1]))"


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
    with subprocess.Popen(
        [sys.executable, "-c", _CODE, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(max(one.devices for one in job.meshes)),
        start_new_session=True,  # a terminal's Ctrl-C is for this process, which ends it
    ) as process:
        try:
            written, said = process.communicate(pickle.dumps(job), timeout_s)
        except subprocess.TimeoutExpired:
            raise SimulationError(
                f"The programs were not compiled within {timeout_s:g} s. Pass a larger timeout_s, "
                "fewer or smaller meshes, or a lower most_devices."
            ) from None
        finally:
            process.kill()
            process.wait()
    if process.returncode == -signal.SIGKILL:
        raise SimulationError(
            "The process of simulate was killed, as the system does when memory runs out. Return "
            "jax.ShapeDtypeStructs instead of arrays, or simulate smaller meshes."
        )
    if process.returncode or not written:
        last = said.decode(errors="replace")[-_LAST_LINES:].strip()
        raise SimulationError(
            f"The process of simulate ended with {process.returncode} and no result. Its last "
            f"lines: {last or 'none'}"
        )
    found: list[Count] | Exception = pickle.loads(written)  # noqa: S301 - of our process
    if isinstance(found, Exception):
        raise found
    return found


def _environment(devices: int) -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", ""), f"--xla_force_host_platform_device_count={devices}"
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "-1",  # those of the flags, of which the last counts
        "XLA_FLAGS": " ".join([*flags, "--xla_backend_optimization_level=0"]),
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "TPU_SKIP_MDS_QUERY": "1",
        "DISTLAB_RECORD": "off",
    }
