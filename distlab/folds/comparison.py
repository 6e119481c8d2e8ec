"""Two runs side by side, aligned by step."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from distlab.folds._fold import Columns


class Told(Protocol):
    """What is known of a run: `Folds`."""

    def columns(self, name: str) -> Columns:
        """Returns the columns of one fold."""


def compare(first: Told, second: Told, names: tuple[str, str] = ("", "")) -> Columns:
    """Returns what two runs have in common, and where they differ.

    Args:
      first: all that is known of one run.
      second: all that is known of the other one.
      names: what to call them; empty names stand for the runs' own.

    Returns:
      Columns (lists with one entry for each of the two runs, unless said otherwise):
        name: what to call it; two equal names get a number.
        metric: the metric that is compared: the first with "loss" in its name that
          both have, else each run's own first loss or first metric; empty without one.
        step, value: float64 arrays: its curve.
        complete: whether each logged value is in the curve.
        time_s, steps_per_s, examples_per_s: float64 arrays: rates over the seconds
          since the run began.
        largest: single value: where the curves differ most, as `(step, value of the
          first, value of the second)`, at the first run's steps that the second one
          covers; its values there are interpolated. None when they share no step.
        what, unit, a, b: lists with one entry for each line of a table: what it is,
          its unit (`"count"`, `"s"`, `"share"`, `"per second"`, `"bytes"`, `"value"`),
          and each run's number, None when it is not known.
    """
    runs = [first, second]
    metrics = [run.columns("metrics") for run in runs]
    rates = [run.columns("steps") for run in runs]
    chosen = _chosen(*(list(one["name"]) for one in metrics))
    places = [
        one["name"].index(name) if name else None for one, name in zip(metrics, chosen, strict=True)
    ]
    curves = [_curve(one, place) for one, place in zip(metrics, places, strict=True)]
    numbers = [_numbers(run, values) for run, (_, values) in zip(runs, curves, strict=True)]
    return {
        "name": _names(runs, names),
        "metric": chosen,
        "step": [step for step, _ in curves],
        "value": [values for _, values in curves],
        "complete": [
            place is None or one["merged"][place] == 1
            for one, place in zip(metrics, places, strict=True)
        ],
        **{
            name: [one[name] for one in rates]
            for name in ("time_s", "steps_per_s", "examples_per_s")
        },
        "largest": _largest(*curves),
        "what": [what for what, _ in numbers[0]],
        "unit": [unit for _, unit in numbers[0]],
        "a": list(numbers[0].values()),
        "b": list(numbers[1].values()),
    }


def _names(runs: list[Told], names: tuple[str, str]) -> list[str]:
    told = [
        given or run.columns("header")["name"] or f"run {number}"
        for number, (run, given) in enumerate(zip(runs, names, strict=True), 1)
    ]
    if told[0] == told[1]:
        return [f"{name} ({number})" for number, name in enumerate(told, 1)]
    return told


def _chosen(first: list[str], second: list[str]) -> list[str]:
    both = [name for name in first if name in second]
    shared = next((name for name in both if "loss" in name.lower()), "")
    if shared:
        return [shared, shared]
    return [
        next((name for name in names if "loss" in name.lower()), names[0] if names else "")
        for names in (first, second)
    ]


def _curve(metrics: Columns, place: int | None) -> tuple[Any, Any]:
    if place is None:
        return np.zeros(0), np.zeros(0)
    return metrics["step"][place], metrics["value"][place]


def _finite(curve: tuple[Any, Any]) -> tuple[Any, Any]:
    kept = np.isfinite(curve[1])
    return curve[0][kept], curve[1][kept]


def _largest(first: tuple[Any, Any], second: tuple[Any, Any]) -> tuple[float, float, float] | None:
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


def _numbers(run: Told, values: Any) -> dict[tuple[str, str], float | None]:
    """The lines of the table, for one run."""
    header, steps = run.columns("header"), run.columns("steps")
    timeline, reductions = run.columns("timeline"), run.columns("reductions")
    waited_s = float(timeline["waited"].sum() * timeline["cell_s"])
    elapsed_s = steps["elapsed_s"] or None
    finite = values[np.isfinite(values)]
    return {
        ("replicas", "count"): len(header["replicas"]),
        ("steps", "count"): steps["steps"],
        ("examples", "count"): steps["examples"],
        ("length of the run", "s"): elapsed_s,
        ("steps a second", "per second"): steps["mean_rate"],
        ("examples a second", "per second"): steps["mean_examples_rate"],
        ("last value of the metric", "value"): float(values[-1]) if len(values) else None,
        ("lowest value of the metric", "value"): float(finite.min()) if len(finite) else None,
        ("combined on one replica", "bytes"): sum(reductions["total_bytes"]),
        ("waited for input", "s"): waited_s,
        ("share of the time waited", "share"): waited_s / elapsed_s if elapsed_s else None,
        ("tracing and compiling", "s"): run.columns("programs")["compiling_s"],
    }
