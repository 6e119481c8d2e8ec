"""Programs of a coordinator and its workers give what TensorFlow gave."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "conformance" / "coordinators"
LIMIT_SECONDS = 600
GOLDENS: dict[str, Any] = json.loads((FOLDER / "goldens.json").read_text())
KILLING = {
    "all_workers_killed_one_comes_back",
    "ps_killed",
    "result_outlives_worker",
    "variables_survive_a_worker",
    "worker_comes_back",
    "worker_killed",
}
"""Programs that kill processes, of which a cluster of threads has none."""

LAST = "ps_killed"
"""It kills a parameter server, which no later program could use."""

RUNNING = {"aggregation_inside", "reduce_inside", "run_inside", "run_outside", "train"}
"""Programs that call `strategy.run`, which compiles a function or runs it eagerly."""

CASES = [("traced", name) for name in sorted(set(GOLDENS) - KILLING)]
CASES += [("eager", name) for name in sorted(RUNNING)]
CASES += [("processes", name) for name in sorted(GOLDENS, key=lambda name: (name == LAST, name))]


@functools.cache
def outcomes(mode: str) -> dict[str, Any]:
    """Runs the programs of a mode one after another, in a process of their own."""
    names = [name for own, name in CASES if own == mode]
    done = subprocess.run(
        [sys.executable, str(FOLDER / "environment.py"), mode, *names],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(map(json.loads, done.stdout.splitlines()))


def test_there_are_38_programs() -> None:
    params = json.loads((FOLDER / "params.json").read_text())
    assert set(GOLDENS) == set(params)
    assert len(GOLDENS) == 38
    assert set(GOLDENS) >= KILLING | RUNNING


@pytest.mark.timeout(LIMIT_SECONDS + 60)
@pytest.mark.parametrize(("mode", "name"), CASES)
def test_a_program_gives_what_tensorflow_gave(mode: str, name: str) -> None:
    assert outcomes(mode)[name] == GOLDENS[name]
