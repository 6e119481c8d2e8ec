"""Programs of several workers give what TensorFlow gave, traced and eagerly."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.processes.cluster import Outcome, run_workers

FOLDER = Path(__file__).parent / "conformance" / "many"
MODES = ("traced", "eager")
ALONE = ("workers_failures.worker_dies",)
"""Programs after which their processes can't run others."""


def _worker() -> Any:
    spec = importlib.util.spec_from_file_location("many_worker", FOLDER / "worker.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WORKER = _worker()
GOLDENS: dict[str, Any] = WORKER.read("goldens.json")
PARAMS: dict[str, Any] = WORKER.read("params.json")
CASES: dict[str, Any] = WORKER.cases()


def shape_of(name: str) -> tuple[int, int, bool]:
    """Returns the workers of a program's cluster, their replicas, and whether one is the chief."""
    case, params = CASES[name], PARAMS[name]
    return (
        params.get("workers", getattr(case, "workers", 2)),
        params.get("replicas", getattr(case, "replicas", 1)),
        params.get("chief", False),
    )


@functools.cache
def outcomes(names: tuple[str, ...], modes: tuple[str, ...]) -> list[Outcome]:
    """Runs programs of one shape of cluster in its processes."""
    workers, replicas, chief = shape_of(names[0])
    program = f"""
import sys
sys.path.insert(0, {str(FOLDER)!r})
import worker
worker.run({list(names)!r}, {list(modes)!r}, RANK, {workers}, {replicas}, show)
"""
    return run_workers(program, workers=workers, chief=chief)


def together(name: str) -> tuple[str, ...]:
    """Returns the programs that share the processes of a program, in order."""
    if name in ALONE:
        return (name,)
    shape = shape_of(name)
    return tuple(n for n in sorted(GOLDENS) if n not in ALONE and shape_of(n) == shape)


def test_all_programs_have_a_golden() -> None:
    assert set(GOLDENS) == set(PARAMS) == set(CASES)
    assert len(GOLDENS) == 70


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_a_program_gives_what_tensorflow_gave(name: str, mode: str) -> None:
    modes = (mode,) if name in ALONE else MODES
    found = [
        outcome.shown.get(f"{mode} {name}", {"error": "Died"})
        for outcome in outcomes(together(name), modes)
    ]
    plain: list[Any] = [
        {"error": one["error"]} if isinstance(one, dict) and "error" in one else one
        for one in found
    ]
    assert WORKER.difference(GOLDENS[name], plain) is None, found
