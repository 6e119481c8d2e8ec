"""Programs in processes of their own, whose devices and whose end are looked at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def finish(program: str, *options: str, seconds: float = 240, **environ: str) -> tuple[int, str]:
    """Runs a program; returns its status and what it wrote, errors included.

    Args:
      program: Its text.
      *options: Options of Python.
      seconds: The longest time it may take.
      **environ: What its environment has besides; nothing there configures JAX.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("XLA_", "JAX_", "PJRT_"))}
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    return done.returncode, done.stdout
