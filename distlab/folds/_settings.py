"""The configuration of a run, in words, to compare it with that of another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from distlab.folds._folds import Folds
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text

_MOST_NAMES: Final = 6


def settings(run: Folds) -> dict[str, str]:
    """Returns the settings of a run by name; those that are not known are empty."""
    header, batches = run.columns("header"), run.columns("batches")
    placement, programs = run.columns("placement"), run.columns("programs")
    reductions = run.columns("reductions")
    planned = run.columns("steps")["total"]
    devices = len(header["replicas"])
    simulated = "simulated " if header["simulated"] else ""
    kind = "device" if devices == 1 else "devices"
    sizes = batches["examples"][batches["dataset"] == batches["main"]]
    called = [
        how
        for inside, ways in zip(reductions["inside"], reductions["how"], strict=True)
        for how in ways
        if not inside
    ]
    variables = len(placement["name"])
    one_copy = bytes_text(int(placement["bytes"].max(axis=1).sum())) if variables else ""
    return {
        "strategy": header["strategy"],
        "devices": f"{count_text(devices)} {simulated}{kind}" if devices else "",
        "examples in a full batch": count_text(int(sizes.max())) if len(sizes) else "",
        "planned steps": "" if planned is None else count_text(planned),
        "variables": f"{count_text(variables)}, {one_copy} a copy" if variables else "",
        "replica functions": _names(programs["function"]),
        "reductions from Python": _names(called),
        "machine": header["host"],
        **header["versions"],
    }


def _names(names: Sequence[str]) -> str:
    different = sorted(set(names))
    left = len(different) - _MOST_NAMES
    return ", ".join(different[:_MOST_NAMES]) + (f" and {left} more" if left > 0 else "")
