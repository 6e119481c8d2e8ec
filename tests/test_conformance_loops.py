"""Loops with Keras' objects give the numbers of TensorFlow, in both modes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "conformance" / "loops"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("mode", "passed"),
    [([], 71), (["--eager", "--programs", "tutorial", "batch_norm", "metrics", "calls"], 59)],
    ids=["traced", "eager"],
)
def test_loops_with_keras_objects_give_tensorflows_numbers(mode: list[str], passed: int) -> None:
    done = subprocess.run(
        [sys.executable, "check.py", "--impl", "distlab", "--replicas", "2", *mode],
        cwd=FOLDER,
        env=os.environ | {"PYTHONPATH": str(FOLDER.parent.parent.parent)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    failures = "\n".join(line for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert not failures, failures
    assert done.stdout.splitlines()[-1] == f"{passed} passed, 0 failed", done.stderr[-2000:]
    assert done.returncode == 0
