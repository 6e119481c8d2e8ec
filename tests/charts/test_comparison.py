"""Two runs side by side: their alignment, their differences, and the texts about them."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from distlab.charts import RunComparison
from distlab.events import Event, Metric, Run
from distlab.folds import Folds, compare
from tests.synthetic import START_NS, beginning, there, whole_run


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


def shown(first: Folds, second: Folds) -> RunComparison:
    chart = RunComparison()
    chart.update(compare(first, second))
    return chart


def test_losses_are_aligned_by_step() -> None:
    columns = compare(
        logged({0: 4.0, 10: 2.0, 20: 1.0}), logged({0: 4.0, 5: 3.5, 15: 2.0, 30: 1.0})
    )
    step, first, second = there(columns["largest"])
    assert (step, first) == (10, 2.0)
    assert second == pytest.approx(2.75)  # between the values at 5 and 15
    assert columns["metric"] == ["loss", "loss"]
    nan = float("nan")
    columns = compare(logged({0: 1.0, 1: nan, 2: 1.0}), logged({0: 1.5, 1: 9.0, 2: 1.0}))
    assert columns["largest"] == (0.0, 1.0, 1.5)


def test_the_largest_difference_is_noted() -> None:
    for other, note in (
        ({0: 4.0, 1: 2.5}, "largest difference: 0.5 at step 1, 2 and 2.5"),
        ({0: 4.0, 1: 2.0}, "no difference at any step"),
        ({5: 4.0, 6: 2.0}, "share no step"),
    ):
        (text,) = shown(logged({0: 4.0, 1: 2.0}), logged(other)).notes.data["text"]
        assert note in text


def test_a_loss_that_both_have_goes_before_others() -> None:
    columns = compare(logged({0: 1.0}, "accuracy"), logged({0: 2.0}, "Train Loss"))
    assert columns["metric"] == ["accuracy", "Train Loss"]
    both = logged({0: 1.0}, "accuracy")
    both.add([Metric(time_ns=START_NS, step=0, values={"Train Loss": 3.0})])
    assert compare(both, logged({0: 2.0}, "Train Loss"))["metric"] == ["Train Loss"] * 2


def test_rates_of_both_runs_are_drawn_in_colours_of_their_own() -> None:
    chart = shown(folds_of(whole_run(100)), folds_of(whole_run(200)))
    assert len(chart.rates.data["time"][0]) < len(chart.rates.data["time"][1])
    assert np.max(chart.rates.data["steps"][1]) == pytest.approx(100, abs=8)
    assert len(set(chart.rates.data["color"])) == 2
    assert chart.rates.data["color"] == chart.source.data["color"]
    assert len(set(chart.source.data["dash"])) == 2  # for print, and for those who see no colours


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
    assert max(len(values) for values in chart.source.data["value"]) <= 2_002
    assert chart.notes.data["text"] == ["no difference at any step (of means of neighbours)"]
