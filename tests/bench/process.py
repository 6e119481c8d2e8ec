"""Measurements in processes of their own, because a process starts JAX's devices once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


def measured(module: str, *args: str, seconds: float, python: str = sys.executable) -> Any:
    """Returns what a module prints last, as JSON, within so many seconds."""
    command = [python, "-m", module, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join([module, *args])} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])
