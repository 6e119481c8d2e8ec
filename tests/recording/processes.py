"""Python programs that record, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

BEGIN = """
import sys, time
import distlab as dl
from distlab.events import sink
from distlab.events import Lost, Step
emit = sink.recorder().emit
def step(number):
    now = time.monotonic_ns()
    emit(Step(time_ns=now, step=number, program=0, strategy=0, dispatched_ns=now, examples=1))
"""


def start(program: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts a program that begins with `BEGIN`."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", BEGIN + program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(program: str, *arguments: str) -> tuple[int, str, str]:
    """Runs a program that begins with `BEGIN`; returns its status and what it wrote."""
    process = start(program, *arguments)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err
