"""Runs side by side, aligned by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, Literal, TypedDict

import numpy as np

from distlab.folds._folds import Folds
from distlab.folds.arrays import Floats
from distlab.folds.metrics import MetricColumns
from distlab.text.bytes import bytes_text
from distlab.text.metric_names import by_interest, is_accuracy, is_loss
from distlab.text.units import count_text

Unit = Literal["count", "s", "share", "per second", "bytes", "value"]
_Curve = tuple[Floats, Floats]

_MOST_METRICS: Final = 8


class MetricOfRuns(TypedDict):
    """One metric of all runs; lists have one entry for each run, empty for one without it."""

    name: str
    step: list[Floats]
    value: list[Floats]
    complete: bool  #: Whether each curve has every logged value, none of them a mean
    largest: tuple[float, float, float] | None  #: Step of the largest difference, and its ends


class ComparisonColumns(TypedDict):
    """Runs side by side; lists have one entry for each run unless stated otherwise."""

    name: list[str]
    metrics: list[MetricOfRuns]  #: At most eight: losses first, and those of most runs
    time_s: list[Floats]
    steps_per_s: list[Floats]
    examples_per_s: list[Floats]
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
      >>> (loss,) = columns["metrics"]
      >>> loss["name"], loss["largest"]  # step, and the lowest and highest loss there
      ('loss', (3.0, 3.0, 6.0))
    """
    metrics = [run.columns("metrics") for run in runs]
    rates = [run.columns("steps") for run in runs]
    chosen = _chosen([one["name"] for one in metrics])
    settings = [_settings(run) for run in runs]
    setting = list(dict.fromkeys(name for one in settings for name in one))
    compared = [_of_runs(name, metrics) for name in chosen]
    lines = [_lines(run, compared, number) for number, run in enumerate(runs)]
    return {
        "name": _names(runs, names),
        "metrics": compared,
        "time_s": [one["time_s"] for one in rates],
        "steps_per_s": [one["steps_per_s"] for one in rates],
        "examples_per_s": [one["examples_per_s"] for one in rates],
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
    logged = Counter(name for names in runs for name in names)
    ranked = by_interest(logged)
    return sorted(ranked, key=lambda name: (not is_loss(name), -logged[name]))[:_MOST_METRICS]


def _of_runs(name: str, runs: Sequence[MetricColumns]) -> MetricOfRuns:
    places = [one["name"].index(name) if name in one["name"] else None for one in runs]
    curves = [_curve(one, place) for one, place in zip(runs, places, strict=True)]
    return {
        "name": name,
        "step": [step for step, _ in curves],
        "value": [values for _, values in curves],
        "complete": all(
            place is None or one["merged"][place] == 1
            for one, place in zip(runs, places, strict=True)
        ),
        "largest": _largest(curves),
    }


def _curve(metrics: MetricColumns, place: int | None) -> _Curve:
    if place is None:
        return np.zeros(0), np.zeros(0)
    return metrics["step"][place], metrics["value"][place]


def _largest(curves: Sequence[_Curve]) -> tuple[float, float, float] | None:
    """Returns where the runs that have values differ most, and their lowest and highest there."""
    kept = [(step[numbers], value[numbers]) for step, value in curves
            if (numbers := np.isfinite(value)).any()]  # fmt: skip
    if len(kept) < 2:
        return None
    begin, end = max(step[0] for step, _ in kept), min(step[-1] for step, _ in kept)
    steps = kept[0][0][(kept[0][0] >= begin) & (kept[0][0] <= end)]
    if not len(steps):
        return None
    there = np.stack([np.interp(steps, step, value) for step, value in kept])
    low, high = there.min(axis=0), there.max(axis=0)
    most = int(np.argmax(high - low))
    return float(steps[most]), float(low[most]), float(high[most])


def _lines(
    run: Folds, metrics: Sequence[MetricOfRuns], number: int
) -> dict[tuple[str, Unit], float | None]:
    """Returns the table's lines for one run."""
    header, steps = run.columns("header"), run.columns("steps")
    timeline, reductions = run.columns("timeline"), run.columns("reductions")
    waited_s = float(timeline["waited"].sum() * timeline["cell_s"])
    elapsed_s = steps["elapsed_s"] or None
    return {
        ("replicas", "count"): len(header["replicas"]),
        ("steps", "count"): steps["steps"],
        ("examples", "count"): steps["examples"],
        ("length of the run", "s"): elapsed_s,
        ("steps per second", "per second"): steps["mean_rate"],
        ("examples per second", "per second"): steps["mean_examples_rate"],
        **_values(run.columns("metrics"), metrics, number),
        ("combined on one replica", "bytes"): sum(reductions["total_bytes"]),
        ("waited for input", "s"): waited_s,
        ("share of the time waited", "share"): waited_s / elapsed_s if elapsed_s else None,
        ("tracing and compiling", "s"): run.columns("programs")["compiled_s"],
    }


def _values(
    columns: MetricColumns, metrics: Sequence[MetricOfRuns], number: int
) -> dict[tuple[str, Unit], float | None]:
    """Returns the lines of metrics for a run: the last, the best, and where runs differ most."""
    found: dict[tuple[str, Unit], float | None] = {}
    kinds = (
        (is_loss, "lowest", columns["low"], np.min),
        (is_accuracy, "highest", columns["high"], np.max),
    )
    for one in metrics:
        name = one["name"]
        place = columns["name"].index(name) if name in columns["name"] else None
        found[f"last {name}", "value"] = None if place is None else columns["last"][place]
        for kind, word, ends, best in kinds:
            if kind(name):
                values = np.zeros(0) if place is None else ends[place]
                finite = values[np.isfinite(values)]
                found[f"{word} {name}", "value"] = float(best(finite)) if len(finite) else None
        if one["largest"] is not None:
            step, low, high = one["largest"]
            place_text = f"{'' if one['complete'] else 'about '}step {count_text(step)}"
            where = "where they differ most" if low < high else "equal throughout"
            found[f"{name} at {place_text}, {where}", "value"] = _at(
                step, one["step"][number], one["value"][number]
            )
    return found


def _at(step: float, steps: Floats, values: Floats) -> float | None:
    """Returns a curve's value at a step, None where it has none."""
    kept = np.isfinite(values)
    return float(np.interp(step, steps[kept], values[kept])) if kept.any() else None


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
