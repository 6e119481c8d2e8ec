"""A run's figures in Prometheus' text format."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from distlab.advice import Advice
from distlab.folds import Folds
from distlab.page.runs_table import RunSummary

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Family(NamedTuple):
    """A metric, with its samples.

    Attributes:
      name: Its name.
      kind: Its type.
      help: One sentence.
      samples: The labels and the value of each sample.
    """

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def exposition(families: Iterator[Family]) -> str:
    """Returns metrics as Prometheus reads them; those without samples are left out."""
    lines = []
    for family in families:
        if family.samples:
            lines += [
                f"# HELP {family.name} {family.help}",
                f"# TYPE {family.name} {family.kind}",
                *(_line(family.name, labels, value) for labels, value in family.samples),
            ]
    return "".join(f"{line}\n" for line in lines)


def families_of_run(
    folds: Folds, advice: Sequence[Advice], *, name: str, live: bool
) -> Iterator[Family]:
    """Yields the figures of one run."""
    header = folds.columns("header")
    run = {"run": name}
    status = header["status"] or ("running" if live else "killed")
    live = status == "running"
    about = {**run, "status": status, "host": header["host"], "strategy": header["strategy"]}
    yield Family("distlab_run_info", "gauge", "What runs, always 1.", [(about, 1)])
    yield _one(
        "distlab_replicas",
        "gauge",
        "Replicas of the newest strategy.",
        run,
        len(header["replicas"]),
    )
    yield from _progress(folds, run, live=live)
    metrics = folds.columns("metrics")
    last = dict(zip(metrics["name"], metrics["last"], strict=True)) | metrics["without_curve"]
    yield Family(
        "distlab_metric",
        "gauge",
        "The last value of each logged metric.",
        [({**run, "name": metric}, value) for metric, value in last.items()],
    )
    yield _one(
        "distlab_metric_values_left_out_total",
        "counter",
        "Logged values of further names, which are left out here.",
        run,
        metrics["values_left_out"],
    )
    yield from _input(folds, run)
    yield from _reductions(folds, run)
    if live:
        yield from _devices(folds, run)
    programs = folds.columns("programs")
    yield _one(
        "distlab_compilations_total",
        "counter",
        "Programs that were compiled.",
        run,
        len(programs["function"]) + programs["rows_left_out"],
    )
    yield _one(
        "distlab_errors_total",
        "counter",
        "Errors that reached the program.",
        run,
        header["error_count"],
    )
    dropped = [
        ({**run, "by": "recording"}, header["not_recorded"]),
        ({**run, "by": "dashboard"}, folds.lost),
    ]
    yield Family(
        "distlab_dropped_events_total",
        "counter",
        "Events that were not recorded, or gone before the dashboard read them.",
        dropped,
    )
    shares: dict[tuple[str, str], float] = {}
    for found in advice:
        key = (found.cause, found.subject)
        shares[key] = max(found.share, shares.get(key, 0.0))
    yield Family(
        "distlab_advice_share",
        "gauge",
        "The share of the time that a finding costs.",
        [
            ({**run, "cause": cause, "subject": subject}, share)
            for (cause, subject), share in shares.items()
        ],
    )


def families_of_folder(runs: Sequence[RunSummary], left_out: int) -> Iterator[Family]:
    """Yields the number of runs in a folder, and the figures of those that go on."""
    counts = Counter("unreadable" if run["fault"] else run["status"] for run in runs)
    if left_out:
        counts["not read"] = left_out
    yield Family(
        "distlab_runs",
        "gauge",
        "Runs in the folder.",
        [({"status": status}, count) for status, count in counts.items()],
    )
    live = [run for run in runs if run["status"] == "running" and not run["fault"]]
    yield Family(
        "distlab_steps_total",
        "counter",
        "Steps that were dispatched.",
        [({"run": run["key"]}, run["steps"]) for run in live],
    )
    yield Family(
        "distlab_metric",
        "gauge",
        "The last value of each logged metric.",
        [
            ({"run": run["key"], "name": name}, value)
            for run in live
            for name, value in run["metrics"].items()
        ],
    )


def _progress(folds: Folds, run: Mapping[str, str], *, live: bool) -> Iterator[Family]:
    steps = folds.columns("steps")
    yield _one("distlab_steps_total", "counter", "Steps that were dispatched.", run, steps["steps"])
    yield _one(
        "distlab_examples_total", "counter", "Examples of these steps.", run, steps["examples"]
    )
    yield _one(
        "distlab_steps_planned",
        "gauge",
        "Steps that the run is meant to take.",
        run,
        steps["total"],
    )
    now = "over the last 2 s before the newest event, 0 when the run has ended."
    yield _one(
        "distlab_steps_per_second",
        "gauge",
        f"Steps per second {now}",
        run,
        steps["rate"] if live else 0,
    )
    yield _one(
        "distlab_examples_per_second",
        "gauge",
        f"Examples per second {now}",
        run,
        steps["examples_rate"] if live else 0,
    )
    since = steps["since_last_s"]
    if since is not None:
        began_s = folds.columns("header")["unix_ns"] / 1e9
        last_s = began_s + steps["elapsed_s"] - since
        yield _one(
            "distlab_last_step_timestamp_seconds",
            "gauge",
            "When the last step was dispatched, in seconds since 1970.",
            run,
            last_s,
        )


def _input(folds: Folds, run: Mapping[str, str]) -> Iterator[Family]:
    batches = folds.columns("batches")
    yield _one(
        "distlab_batches_total", "counter", "Batches that were divided.", run, batches["count"]
    )
    yield _one(
        "distlab_input_bytes_total",
        "counter",
        "Bytes of these batches.",
        run,
        batches["total_bytes"],
    )
    yield _one(
        "distlab_input_wait_seconds_total",
        "counter",
        "Time spent on waiting for them.",
        run,
        batches["total_wait_s"],
    )


def _reductions(folds: Folds, run: Mapping[str, str]) -> Iterator[Family]:
    found = folds.columns("reductions")
    counts: Counter[tuple[str, str]] = Counter()
    sizes: Counter[tuple[str, str]] = Counter()
    rows = zip(found["kind"], found["inside"], found["count"], found["total_bytes"], strict=True)
    for kind, inside, count, size in rows:
        key = (kind, "program" if inside else "python")
        counts[key] += count
        sizes[key] += size
    for name, text, totals in (
        ("distlab_reductions_total", "Reductions and collectives that ran.", counts),
        ("distlab_reduced_bytes_total", "Bytes of one replica's operands of these.", sizes),
    ):
        samples = [
            ({**run, "kind": kind, "called_from": place}, total)
            for (kind, place), total in totals.items()
        ]
        yield Family(name, "counter", text, samples)


def _devices(folds: Folds, run: Mapping[str, str]) -> Iterator[Family]:
    devices = folds.columns("devices")
    for name, text, values in (
        (
            "distlab_device_busy_ratio",
            "Share of the last window in which it had a step to do.",
            devices["now"],
        ),
        (
            "distlab_device_memory_bytes",
            "Bytes in use by the device's allocator.",
            devices["memory"] or (),
        ),
        (
            "distlab_device_used_bytes",
            "Bytes in use on the GPU by all processes.",
            devices["used"] or (),
        ),
    ):
        samples = [
            ({**run, "device": device}, float(value))
            for device, value in zip(devices["device"], values, strict=False)
        ]
        yield Family(name, "gauge", text, samples)
    resident = devices["process_bytes"]
    yield _one(
        "distlab_process_resident_memory_bytes",
        "gauge",
        "Memory of the process.",
        run,
        int(resident[-1]) if len(resident) else None,
    )


def _one(
    name: str,
    kind: Literal["counter", "gauge"],
    text: str,
    labels: Mapping[str, str],
    value: float | None,
) -> Family:
    return Family(name, kind, text, [] if value is None else [(labels, value)])


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inner = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {_number(value)}"


def _escaped(text: str) -> str:
    plain = text.encode("utf-8", "backslashreplace").decode()
    return plain.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
