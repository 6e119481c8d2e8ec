"""A run that real processes recorded together: the workers of one strategy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WORKERS = 2
DEVICES = 4
STEPS = 40
LIMIT_S = 240

PROGRAM = f"""
import sys

import jax
import jax.numpy as jnp

import distlab as dl

strategy = dl.MultiWorkerMirroredStrategy(devices_per_worker={DEVICES})


def step(number):
    table = jnp.tanh(jnp.full((64, 64), number) @ jnp.ones((64, 64)))
    return dl.get_replica_context().all_reduce("SUM", table.mean())


with dl.record(sys.argv[1], total_steps={STEPS}) as recording:
    for number in range({STEPS}):
        total = strategy.run(step, args=(float(number),))
        recording.log(number=number)
"""


def record(folder: Path, program: str = PROGRAM) -> None:
    """Runs a program in several processes, each with the run's folder as its argument."""
    launch(folder.with_name(f"{folder.name}.py"), program, str(folder), devices=DEVICES)


def launch(script: Path, program: str, *arguments: str, devices: int) -> None:
    """Runs a program in several processes, which must end well."""
    script.write_text(program)
    command = [sys.executable, "-m", "distlab", "launch", "--workers", str(WORKERS)]
    done = subprocess.run(
        [*command, "--devices", str(devices), str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONWARNINGS": "error"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
