"""A run's figures for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from distlab.advice import Advice
from distlab.folds import Folds, pace_of
from distlab.page.runs_table import RunSummary

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | None]]
Family = tuple[str, str, Samples]
"""A metric's name and help, and its samples; those of None are left out."""


class _Figures(Collector):
    """Metrics that are known already."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Yields the metrics that have samples."""
        for name, text, samples in self._families:
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            made = kind(name, text)
            for labels, value in samples:
                if value is not None:
                    plain = {key: _encodable(label) for key, label in labels.items()}
                    made.add_sample(name, plain, float(value))
            if made.samples:
                yield made


def exposition(families: Iterable[Family]) -> bytes:
    """Returns metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(families))
    return generate_latest(registry)


def families_of_run(
    folds: Folds, advice: Sequence[Advice], *, name: str, live: bool, now_s: float | None = None
) -> Iterator[Family]:
    """Yields the figures of one run."""
    header = folds.columns("header")
    status = header["status"] or ("running" if live else "killed")
    live = status == "running"
    run = {"run": name}
    about = {**run, "status": status, "host": header["host"], "strategy": header["strategy"]}
    yield "distlab_run_info", "The run, always 1.", [(about, 1)]
    for metric, text, value in _single(folds, live=live, now_s=now_s):
        yield metric, text, [(run, value)]
    metrics = folds.columns("metrics")
    last = dict(zip(metrics["name"], metrics["last"], strict=True)) | metrics["without_curve"]
    yield (
        "distlab_metric",
        "The last value of each logged metric.",
        [({**run, "name": metric}, value) for metric, value in last.items()],
    )
    yield from _reductions(folds, run)
    if live:
        yield from _devices(folds, run)
    yield (
        "distlab_dropped_events_total",
        "Events that were not recorded, or gone before the dashboard read them.",
        [
            ({**run, "by": "recording"}, header["not_recorded"]),
            ({**run, "by": "dashboard"}, folds.lost),
        ],
    )
    shares: dict[tuple[str, str], float] = {}
    for found in advice:
        key = (found.cause, found.subject)
        shares[key] = max(found.share, shares.get(key, 0.0))
    yield (
        "distlab_advice_share",
        "The share of the time that a finding costs.",
        [
            ({**run, "cause": cause, "subject": subject}, share)
            for (cause, subject), share in shares.items()
        ],
    )


def families_of_folder(runs: Sequence[RunSummary], left_out: int) -> Iterator[Family]:
    """Yields the number of runs in a folder, and the figures of those that go on."""
    counts = Counter("unreadable" if run.fault else run.status for run in runs)
    if left_out:
        counts["not read"] = left_out
    yield (
        "distlab_runs",
        "Runs in the folder.",
        [({"status": status}, count) for status, count in counts.items()],
    )
    live = [run for run in runs if run.status == "running" and not run.fault]
    yield (
        "distlab_steps_total",
        "Steps that were dispatched.",
        [({"run": run.key}, run.steps) for run in live],
    )
    yield (
        "distlab_metric",
        "The last value of each logged metric.",
        [
            ({"run": run.key, "name": name}, value)
            for run in live
            for name, value in run.metrics.items()
        ],
    )


def _single(
    folds: Folds, *, live: bool, now_s: float | None
) -> Iterator[tuple[str, str, float | None]]:
    """Yields the figures of which a run has one each."""
    header, steps = folds.columns("header"), folds.columns("steps")
    batches, programs = folds.columns("batches"), folds.columns("programs")
    resident = folds.columns("devices")["process_bytes"]
    since = steps["since_last_s"]
    last_s = None if since is None else header["unix_ns"] / 1e9 + steps["elapsed_s"] - since
    compiled = len(programs["function"]) + programs["rows_left_out"]
    pace = pace_of(steps, now_s)
    now = "over the last 2 s, 0 when the run is paused, takes no steps or has ended."
    yield from (
        ("distlab_replicas", "Replicas of the newest strategy.", len(header["replicas"])),
        ("distlab_steps_total", "Steps that were dispatched.", steps["steps"]),
        ("distlab_examples_total", "Examples of these steps.", steps["examples"]),
        ("distlab_steps_planned", "Steps that the run is meant to take.", steps["total"]),
        ("distlab_steps_per_second", f"Steps per second {now}", pace.rate if live else 0),
        (
            "distlab_examples_per_second",
            f"Examples per second {now}",
            pace.examples_rate if live else 0,
        ),
        (
            "distlab_last_step_timestamp_seconds",
            "When the last step was dispatched, in seconds since 1970.",
            last_s,
        ),
        (
            "distlab_metric_values_left_out_total",
            "Logged values of further names, which are left out here.",
            folds.columns("metrics")["values_left_out"],
        ),
        ("distlab_batches_total", "Batches that were divided.", batches["count"]),
        ("distlab_input_bytes_total", "Bytes of these batches.", batches["total_bytes"]),
        (
            "distlab_input_wait_seconds_total",
            "Time spent on waiting for them.",
            batches["total_wait_s"],
        ),
        ("distlab_compilations_total", "Programs that were compiled.", compiled),
        ("distlab_errors_total", "Errors that reached the program.", header["error_count"]),
        (
            "distlab_process_resident_memory_bytes",
            "Memory of the process.",
            int(resident[-1]) if live and len(resident) else None,
        ),
    )


def _reductions(folds: Folds, run: Labels) -> Iterator[Family]:
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
        yield name, text, samples


def _devices(folds: Folds, run: Labels) -> Iterator[Family]:
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
        named = zip(devices["device"], values, strict=False)
        yield name, text, [({**run, "device": device}, float(value)) for device, value in named]


def _encodable(text: str) -> str:
    """Returns a text of a run without the halves of letters that UTF-8 can't have."""
    return text.encode("utf-8", "backslashreplace").decode()
