"""The NVIDIA GPUs that a process may use, as CUDA names them."""

from __future__ import annotations

import os
import shutil
import subprocess

from distlab.errors import ClusterError

_SECONDS = 10


def named_by_environment() -> list[str] | None:
    """Returns the entries of CUDA_VISIBLE_DEVICES before one that is no device; None if not set."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return None
    names: list[str] = []
    for entry in text.split(","):
        name = entry.strip()
        if name in ("", "-1", "NoDevFiles"):
            break
        names.append(name)
    return names


def count_by_nvidia_smi() -> int:
    """Counts the GPUs of this machine; without nvidia-smi there is no driver, and none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        listing = subprocess.run(
            [program, "--list-gpus"], capture_output=True, text=True, timeout=_SECONDS, check=True
        ).stdout
    except (subprocess.SubprocessError, OSError) as error:
        raise ClusterError(
            f"nvidia-smi --list-gpus did not list the GPUs: {error}. Pass gpus_per_node=."
        ) from error
    return sum(line.startswith("GPU ") for line in listing.splitlines())
