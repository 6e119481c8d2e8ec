"""Runs side by side: their alignment, their differences, and the texts about them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from bokeh.models import LabelSet

from distlab.charts import RunComparison
from distlab.charts.comparison import look
from distlab.events import Event, Metric, Run
from distlab.folds import Folds, compare
from distlab.page.comparison_tables import number_rows
from tests.synthetic import START_NS, beginning, whole_run


def logged(values: dict[int, float], name: str = "loss", run: str = "made-up") -> Folds:
    events: list[Event] = [*beginning(8, name=run)]
    events += [
        Metric(time_ns=START_NS + step * 1_000_000, step=step, values={name: number})
        for step, number in values.items()
    ]
    return folds_of(events)


def folds_of(events: Any) -> Folds:
    folds = Folds()
    folds.add(events)
    return folds


def shown(*runs: Folds) -> RunComparison:
    chart = RunComparison()
    chart.update(compare(*runs))
    return chart


def largest(*runs: Folds) -> tuple[float, float, float] | None:
    (one,) = compare(*runs)["metrics"]
    return one["largest"]


def numbers(*runs: Folds) -> dict[str, tuple[str, ...]]:
    return {what: tuple(texts) for what, *texts in number_rows(compare(*runs))}


def test_metrics_are_aligned_by_step() -> None:
    runs = (
        logged({0: 4.0, 10: 2.0, 20: 1.0}),
        logged({0: 4.0, 5: 3.5, 15: 2.0, 30: 1.0}),
        logged({0: 3.0, 10: 1.0, 40: 1.0}),
    )
    assert largest(*runs[:2]) == pytest.approx((10, 2.0, 2.75))  # between those at 5 and 15
    assert largest(*runs) == pytest.approx((10, 1.0, 2.75))
    nan = float("nan")
    found = largest(logged({0: 1.0, 1: nan, 2: 1.0}), logged({0: 1.5, 1: 9.0, 2: 1.0}))
    assert found == (0.0, 1.0, 1.5)
    assert largest(logged({0: 1.0}), logged({5: 1.0})) is None
    there = numbers(*runs)["loss at step 10, where they differ most"]
    assert there == ("2", "2.75", "1")


def test_losses_go_first_and_then_what_most_runs_have() -> None:
    runs = [logged({0: 1.0}, name) for name in ("lr", "accuracy", "Train Loss", "accuracy")]
    assert [one["name"] for one in compare(*runs)["metrics"]] == ["Train Loss", "accuracy", "lr"]
    many = [logged({0: 1.0}, f"m{number}") for number in range(20)]
    assert len(compare(*many)["metrics"]) == 8


def test_each_metric_has_a_chart_of_the_runs_that_logged_it() -> None:
    chart = RunComparison()
    chart.update(None)
    texts = [
        text for one in chart.root.select({"type": LabelSet}) for text in one.source.data["text"]
    ]
    assert sorted(text.split("\n")[0] for text in texts) == [
        "No two runs to compare.",
        *["Rates appear after some steps of the"] * 2,
    ]
    both = logged({0: 1.0, 1: 0.5}, run="a")
    both.add([Metric(time_ns=START_NS, step=0, values={"accuracy": 0.5})])
    chart.update(compare(both, logged({0: 2.0, 1: 0.5}, run="b")))
    loss, accuracy = chart.metrics
    assert loss.source.data["name"] == ["a", "b"]
    assert accuracy.source.data["name"] == ["a"]
    assert accuracy.source.data["color"] == loss.source.data["color"][:1]
    assert loss.largest.data == {"step": [0.0], "low": [1.0], "high": [2.0]}
    assert len(set(map(look, range(24)))) == 24


def test_rates_of_both_runs_are_drawn_in_colours_of_their_own() -> None:
    chart = shown(folds_of(whole_run(100)), folds_of(whole_run(200)))
    assert len(chart.source.data["time"][0]) < len(chart.source.data["time"][1])
    assert np.max(chart.source.data["steps"][1]) == pytest.approx(100, abs=8)
    assert len(set(chart.source.data["color"])) == 2
    source = chart.metrics[0].source
    assert chart.source.data["color"] == source.data["color"]
    assert len(set(source.data["dash"])) == 2  # for print, and for those who see no colours


def test_runs_have_names_that_differ() -> None:
    assert compare(logged({}, run="a"), logged({}, run="b"))["name"] == ["a", "b"]
    assert compare(logged({}, run="a"), logged({}, run="a"))["name"] == ["a (1)", "a (2)"]
    assert compare(Folds(), Folds())["name"] == ["run 1", "run 2"]
    assert compare(Folds(), Folds(), names=("x", ""))["name"] == ["x", "run 2"]


def test_strangers_names_are_only_text() -> None:
    run = beginning(2, name="$$evil$$")[0]
    assert isinstance(run, Run)
    evil = folds_of([run, Metric(time_ns=START_NS, step=0, values={"$$loss$$": 1.0})])
    chart = shown(evil, folds_of([msgspec.structs.replace(run, name="\\[b\\]")]))
    data = [source.data for source in chart.root.select({"type": type(chart.source)})]
    texts = [str(text) for one in data for name in ("text", "name") for text in one.get(name, [])]
    assert texts
    assert not any("$$" in text or "\\[" in text for text in texts)


def test_long_runs_send_little() -> None:
    metrics: list[Event] = [
        Metric(time_ns=START_NS + step, step=step, values={"loss": 1 / (step + 1)})
        for step in range(20_000)
    ]
    long = folds_of([*beginning(8), *metrics])
    chart = shown(long, long)
    assert max(len(values) for values in chart.metrics[0].source.data["value"]) <= 2_002
    (line,) = (what for what in numbers(long, long) if "equal throughout" in what)
    assert line.startswith("loss at about step ")
