"""The programs recorded under TensorFlow give the same results here, in both modes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDER = HERE / "conformance"
LIMIT_SECONDS = 1200


def _case_names() -> set[str]:
    return set(json.loads((FOLDER / "cases" / "visible" / "goldens.json").read_text()))


def _listed() -> set[str]:
    return set(json.loads((FOLDER / "needs_python.json").read_text()))


@pytest.mark.timeout(LIMIT_SECONDS)
@pytest.mark.parametrize("mode", ["eager", "traced"])
def test_programs_recorded_under_tensorflow_give_the_same_results(mode: str) -> None:
    check = [sys.executable, "check.py", "--impl", "distlab", "--path", str(HERE.parent)]
    done = subprocess.run(
        [*check, "--mode", mode, "--jobs", "2", "--timeout", "300"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    failures = "\n".join(line for line in done.stdout.splitlines() if line.startswith("FAIL"))
    assert not failures, failures
    count = len(_case_names()) - (len(_listed()) if mode == "traced" else 0)
    assert done.stdout.splitlines()[-1] == f"{count} passed, 0 failed", done.stderr[-2000:]
    assert done.returncode == 0


def test_there_are_396_programs_and_each_one_that_needs_python_is_one_of_them() -> None:
    assert len(_case_names()) == 396
    assert _listed() <= _case_names()
