"""The README's first program does what a reader expects of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
CHECK = """
import numpy as np
recorded = dl.Run.open("runs/first")
losses = [event.values["loss"] for event in recorded.events("metric")]
recorded.close()
assert len(losses) == 29, losses  # 28 full batches and one of 5, which leaves 3 replicas empty
assert np.isfinite(losses).all(), losses
assert np.mean(losses[-6:-1]) < 0.6 * losses[0], losses
assert np.isfinite(w.numpy()).all()
"""


def test_the_first_program_trains_and_is_recorded(tmp_path: Path) -> None:
    program, _ = PROGRAMS
    subprocess.run(
        [sys.executable, "-W", "error", "-c", program + CHECK],
        cwd=tmp_path,
        check=True,
        timeout=240,
    )


def test_the_second_program_shows_what_moves_on_its_mesh(tmp_path: Path) -> None:
    _, program = PROGRAMS
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        check=True,
        timeout=240,
        capture_output=True,
        text=True,
    )
    assert "float32[64, 8]  P(None, 'model')" in done.stdout
    assert "gradients of w" in done.stdout
