"""`/metrics`: Prometheus' own parser reads it, and its figures are those of the run."""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import distlab as dl
from distlab.events import Error, Lost, Metric, Run, Sharding, Step
from distlab.recording import RingRecorder
from distlab_dashboard import DashboardServer, serve
from tests.patience import LIMIT_SECONDS
from tests.recording import samples
from tests.synthetic import START_NS, STEP_NS, ListSource, beginning, compiled, steps, whole_run
from tests.ui.asking import ask
from tests.ui.conftest import Served, ended


class Figures:
    """The samples of an answer, found by name and labels."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self._samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self._samples
                self._samples[key] = sample.value

    def one(self, name: str, /, **labels: str) -> float:
        wanted = set(labels.items())
        (value,) = (v for (n, found), v in self._samples.items() if n == name and wanted <= found)
        return value

    def names(self) -> set[str]:
        return {name for name, _ in self._samples}


def figures(server: DashboardServer, query: str = "") -> Figures:
    """Returns what a server answers when it has read all of the run."""
    limit = time.monotonic() + LIMIT_SECONDS
    while True:
        answer = ask(server, "metrics" + query)
        if answer.status == 200:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return Figures(answer.body.decode())
        assert answer.status == 503
        assert answer.headers["Retry-After"] == "5"
        assert time.monotonic() < limit
        time.sleep(0.02)


def test_the_figures_are_those_of_the_run(served: Served) -> None:
    found = figures(served(ListSource([*beginning(total_steps=90), compiled(8), *steps(30)])))
    events = [*beginning(), *steps(30)]
    batches = [event for event in events if isinstance(event, Sharding)]
    last = max(event.time_ns for event in events if isinstance(event, Step))
    losses = [event.values["loss"] for event in events if isinstance(event, Metric)]
    begun = next(event for event in events if isinstance(event, Run))
    info = {"run": "made-up", "status": "running", "host": "host", "strategy": "MirroredStrategy"}
    assert found.one("distlab_run_info", **info) == 1
    assert found.one("distlab_replicas") == 8
    assert found.one("distlab_steps_total", run="made-up") == 30
    assert found.one("distlab_steps_planned") == 90
    assert found.one("distlab_examples_total") == sum(sum(batch.sizes) for batch in batches)
    assert found.one("distlab_batches_total") == len(batches)
    assert found.one("distlab_input_bytes_total") == sum(batch.bytes for batch in batches)
    waited = sum(batch.wait_ns for batch in batches) / 1e9
    assert found.one("distlab_input_wait_seconds_total") == pytest.approx(waited)
    assert found.one("distlab_metric", name="loss") == losses[-1]
    unix_s = (begun.unix_ns + last - START_NS) / 1e9
    assert found.one("distlab_last_step_timestamp_seconds") == pytest.approx(unix_s)
    assert found.one("distlab_steps_per_second") == pytest.approx(1e9 / STEP_NS, rel=0.2)
    assert found.one("distlab_device_busy_ratio", device="CPU:3") == pytest.approx(
        0.55 + 0.3 * math.sin(29 / 40 + 3), abs=1e-6
    )
    assert found.one("distlab_process_resident_memory_bytes") == 400_290_000
    python = {"kind": "reduce MEAN", "called_from": "python"}
    assert found.one("distlab_reductions_total", **python) == 30
    assert found.one("distlab_reduced_bytes_total", **python) == 120
    inside = sum(c.operand_bytes * (c.times_per_step or 1) for c in compiled(8).collectives)
    reduced = found.one("distlab_reduced_bytes_total", kind="all-reduce", called_from="program")
    assert reduced == 30 * inside
    assert found.one("distlab_compilations_total") == 1
    assert found.one("distlab_errors_total") == 0
    assert found.one("distlab_dropped_events_total", by="recording") == 0
    assert found.kinds["distlab_steps"] == "counter"  # the parser leaves _total out
    assert found.kinds["distlab_device_busy_ratio"] == "gauge"
    found = figures(served(ended(whole_run(30))))
    assert found.one("distlab_run_info", status="finished") == 1
    assert found.one("distlab_steps_total") == 30
    assert found.one("distlab_steps_per_second") == 0
    assert found.one("distlab_examples_per_second") == 0
    assert "distlab_device_busy_ratio" not in found.names()


def test_texts_are_escaped_and_metrics_beyond_the_bound_counted(served: Served) -> None:
    wicked = 'a "run"\\\n} 1\n# TYPE '
    norms = {f"norm/layer{n}": float(n) for n in range(10_070)}
    strange = {'lo"ss\n\\': math.nan, "up": math.inf, "down": -math.inf}
    logged = [strange, norms, {"loss": 0.5, "accuracy": 0.7}]
    metrics = [Metric(time_ns=START_NS, step=1, values=values) for values in logged]
    lost = Lost(time_ns=START_NS, count=7, reason="The disk is full.")
    error = Error(time_ns=START_NS, where="run", type="ValueError", message="no")
    found = figures(served(ListSource([*beginning(name=wicked), *metrics, lost, error])))
    assert math.isnan(found.one("distlab_metric", run=wicked, name='lo"ss\n\\'))
    assert found.one("distlab_metric", name="up") == math.inf
    assert found.one("distlab_metric", name="down") == -math.inf
    assert found.one("distlab_metric", name="loss") == 0.5
    assert found.one("distlab_metric", name="accuracy") == 0.7
    assert found.one("distlab_metric", name="norm/layer10060") == 10_060
    assert found.one("distlab_metric_values_left_out_total") == 9
    assert found.one("distlab_dropped_events_total", by="recording") == 7
    assert found.one("distlab_errors_total") == 1
    assert "distlab_steps_planned" not in found.names()


def test_a_folder_has_the_runs_that_go_on(recorder: RingRecorder, tmp_path: Path) -> None:
    with dl.record(tmp_path / "old") as old:
        old.log(0, loss=3.0)
    with dl.record(tmp_path / "new") as new:
        recorder.emit(samples.step(4))
        new.log(loss=0.5)
        made = serve(tmp_path)
        try:
            found = figures(made)
            assert found.one("distlab_runs", status="finished") == 1
            assert found.one("distlab_runs", status="running") == 1
            limit = time.monotonic() + LIMIT_SECONDS
            while "distlab_metric" not in found.names() and time.monotonic() < limit:
                time.sleep(0.1)  # the folder's list is renewed every 2 s
                found = figures(made)
            assert found.one("distlab_metric", name="loss") == 0.5
            assert found.one("distlab_steps_total", run="new") == 1
            assert figures(made, "?run=old").one("distlab_metric", run="old", name="loss") == 3.0
            shutil.rmtree(tmp_path / "old")
            assert ask(made, "metrics?run=old").status == 404
            assert ask(made, "metrics?run=..").status == 404
            assert ask(made, "metrics?run=none").status == 404
        finally:
            made.stop()
