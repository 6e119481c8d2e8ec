"""Runs side by side, aligned by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypedDict

import numpy as np

from distlab.folds._folds import Folds
from distlab.folds.arrays import Floats
from distlab.folds.metrics import MetricColumns
from distlab.text.bytes import bytes_text
from distlab.text.metric_names import by_interest, is_loss
from distlab.text.units import count_text

Unit = Literal["count", "s", "share", "per second", "bytes", "value"]
_Curve = tuple[Floats, Floats]


class ComparisonColumns(TypedDict):
    """Runs side by side; lists have one entry for each run unless stated otherwise."""

    name: list[str]
    metric: list[str]  #: The first loss of all runs, else each run's own first
    step: list[Floats]
    value: list[Floats]
    complete: list[bool]  #: Whether each curve has every logged value, none of them a mean
    time_s: list[Floats]
    steps_per_s: list[Floats]
    examples_per_s: list[Floats]
    largest: tuple[float, float, float] | None  #: Step and values where the first two differ most
    setting: list[str]  #: Names of the settings of all runs
    settings: list[list[str]]  #: Each run's settings as text, empty when not known
    what: list[str]  #: Names of the lines of a table
    unit: list[Unit]
    numbers: list[list[float | None]]  #: Each run's numbers, one for each line, None when unknown


def compare(*runs: Folds, names: Sequence[str] = ()) -> ComparisonColumns:
    """Compares runs.

    Args:
      *runs: The folds of two runs or more.
      names: Names to show, one for each run; an empty one stands for the run's own name.

    Returns:
      The runs' curves and rates, and tables of their settings and numbers.

    Example:
      >>> from distlab.events import Metric
      >>> from distlab.folds import Folds, compare
      >>> first, second = Folds(), Folds()
      >>> for folds, slope in ((first, 1.0), (second, 2.0)):
      ...     folds.add([Metric(time_ns=0, step=step, values={"loss": 9 - slope * step})
      ...                for step in range(4)])
      >>> columns = compare(first, second, names=("slow", "fast"))
      >>> columns["metric"], columns["largest"]  # step, and both runs' losses there
      (['loss', 'loss'], (3.0, 6.0, 3.0))
    """
    metrics = [run.columns("metrics") for run in runs]
    rates = [run.columns("steps") for run in runs]
    chosen = _chosen([one["name"] for one in metrics])
    places = [
        one["name"].index(name) if name else None for one, name in zip(metrics, chosen, strict=True)
    ]
    curves = [_curve(one, place) for one, place in zip(metrics, places, strict=True)]
    settings = [_settings(run) for run in runs]
    setting = list(dict.fromkeys(name for one in settings for name in one))
    lines = [_lines(run, place) for run, place in zip(runs, places, strict=True)]
    return {
        "name": _names(runs, names),
        "metric": chosen,
        "step": [step for step, _ in curves],
        "value": [values for _, values in curves],
        "complete": [
            place is None or one["merged"][place] == 1
            for one, place in zip(metrics, places, strict=True)
        ],
        "time_s": [one["time_s"] for one in rates],
        "steps_per_s": [one["steps_per_s"] for one in rates],
        "examples_per_s": [one["examples_per_s"] for one in rates],
        "largest": _largest(*curves[:2]),
        "setting": setting,
        "settings": [[one.get(name, "") for name in setting] for one in settings],
        "what": [what for what, _ in lines[0]],
        "unit": [unit for _, unit in lines[0]],
        "numbers": [list(one.values()) for one in lines],
    }


def _names(runs: Sequence[Folds], names: Sequence[str]) -> list[str]:
    given = [*names, *[""] * (len(runs) - len(names))]
    found = [
        name or run.columns("header")["name"] or f"run {number}"
        for number, (run, name) in enumerate(zip(runs, given, strict=True), 1)
    ]
    return [
        f"{name} ({number})" if found.count(name) > 1 else name
        for number, name in enumerate(found, 1)
    ]


def _chosen(runs: Sequence[list[str]]) -> list[str]:
    every = [name for name in runs[0] if all(name in names for names in runs)]
    shared = next(filter(is_loss, by_interest(every)), "")
    if shared:
        return [shared] * len(runs)
    return [next(filter(is_loss, by_interest(names)), names[0] if names else "") for names in runs]


def _curve(metrics: MetricColumns, place: int | None) -> _Curve:
    if place is None:
        return np.zeros(0), np.zeros(0)
    return metrics["step"][place], metrics["value"][place]


def _finite(curve: _Curve) -> _Curve:
    kept = np.isfinite(curve[1])
    return curve[0][kept], curve[1][kept]


def _largest(first: _Curve, second: _Curve) -> tuple[float, float, float] | None:
    steps, values = _finite(first)
    others, other_values = _finite(second)
    if not len(steps) or not len(others):
        return None
    inside = (steps >= others[0]) & (steps <= others[-1])
    if not inside.any():
        return None
    steps, values = steps[inside], values[inside]
    there = np.interp(steps, others, other_values)
    most = int(np.argmax(np.abs(values - there)))
    return float(steps[most]), float(values[most]), float(there[most])


def _lines(run: Folds, place: int | None) -> dict[tuple[str, Unit], float | None]:
    """Returns the table's lines for one run."""
    header, steps, programs = (
        run.columns("header"),
        run.columns("steps"),
        run.columns("programs"),
    )
    compiled = zip(programs["at_s"], programs["compile_s"], strict=True)
    timeline, reductions = run.columns("timeline"), run.columns("reductions")
    waited_s = float(timeline["waited"].sum() * timeline["cell_s"])
    elapsed_s = steps["elapsed_s"] or None
    metrics = run.columns("metrics")
    lows = metrics["low"][place] if place is not None else np.zeros(0)
    finite = lows[np.isfinite(lows)]
    return {
        ("replicas", "count"): len(header["replicas"]),
        ("steps", "count"): steps["steps"],
        ("examples", "count"): steps["examples"],
        ("length of the run", "s"): elapsed_s,
        ("steps per second", "per second"): steps["mean_rate"],
        ("examples per second", "per second"): steps["mean_examples_rate"],
        ("last value of the metric", "value"): None if place is None else metrics["last"][place],
        ("lowest value of the metric", "value"): float(finite.min()) if len(finite) else None,
        ("combined on one replica", "bytes"): sum(reductions["total_bytes"]),
        ("waited for input", "s"): waited_s,
        ("share of the time waited", "share"): waited_s / elapsed_s if elapsed_s else None,
        # Those of before the run are listed where they are still used.
        ("tracing and compiling", "s"): sum(took for ready, took in compiled if ready),
    }


_MOST_NAMES: Final = 6


def _settings(run: Folds) -> dict[str, str]:
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
    known = {
        "strategy": header["strategy"],
        "devices": f"{count_text(devices)} {simulated}{kind}" if devices else "",
        "examples in a full batch": count_text(int(sizes.max())) if len(sizes) else "",
        "planned steps": "" if planned is None else count_text(planned),
        "variables": f"{count_text(variables)}, {one_copy} a copy" if variables else "",
        "replica functions": _listed(programs["function"]),
        "reductions from Python": _listed(called),
        "machine": header["host"],
        **header["versions"],
    }
    stated = {
        f"config.{name}" if name in known else name: str(value)
        for name, value in header["config"].items()
    }
    return stated | known


def _listed(names: Sequence[str]) -> str:
    different = sorted(set(names))
    left = len(different) - _MOST_NAMES
    return ", ".join(different[:_MOST_NAMES]) + (f" and {left} more" if left > 0 else "")
