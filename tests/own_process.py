"""Programs that tests run in a process of their own."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


def run(program: str, *arguments: object, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    """Runs a Python program, which may import the tests, and returns what it printed.

    Args:
      program: Its code.
      *arguments: What it finds in `sys.argv`.
      seconds: The longest that it may take.
    """
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        cwd=ROOT,
    )


def give_up_privileges() -> None:
    """Makes the modes of files hold for this thread and its later ones, also where root runs it."""
    if os.getuid() == 0:
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
