"""The README's programs do what a reader expects of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
PROGRAMS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
CHECK = """
recorded = dl.Run.open("runs/first")
assert recorded.summary()["steps"] == 10 * 29  # the last batch has 5 examples: 3 replicas have none
recorded.close()
"""


def test_the_first_program_learns_and_names_its_page(tmp_path: Path) -> None:
    printed = _printed(PROGRAMS[0] + CHECK, tmp_path)
    found = re.fullmatch(r"(.+)% right. Look: (.+)\n", printed)
    assert found is not None
    right, look = found.groups()
    assert float(right) > 95
    assert look == "distlab dashboard runs/first"


def test_the_second_program_shows_what_moves_on_its_mesh(tmp_path: Path) -> None:
    printed = _printed(PROGRAMS[1], tmp_path)
    assert "gradients of w" in printed
    assert printed.endswith("Look: distlab dashboard runs/plain\n")


def _printed(program: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=folder,
        check=True,
        timeout=240,
        capture_output=True,
        text=True,
    )
    return done.stdout
