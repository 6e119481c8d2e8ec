"""The texts of the Overview and the table of runs about logged numbers."""

from __future__ import annotations

from distlab.events import Metric
from distlab.folds import Folds
from distlab.page.facts import Facts
from distlab.page.facts.metrics import metric_facts
from distlab.page.runs_table import RunSummary, run_rows


def noted(*values: dict[str, float]) -> Facts:
    folds = Folds()
    folds.add([Metric(time_ns=step, step=step, values=each) for step, each in enumerate(values)])
    return metric_facts(folds.columns("metrics"))


def test_the_loss_is_shown_after_however_many_other_names() -> None:
    facts = noted({f"norm/layer{n}": 1.0 for n in range(64)}, {"loss": 0.5, "accuracy": 0.7})
    assert (facts["loss_name"], facts["loss"]) == ("loss", "0.5")
    assert facts["losses_not_drawn"] == ""
    assert facts["others_not_drawn"] == (
        "57 other metrics are not drawn: norm/layer7, norm/layer8, norm/layer9 and 54 more. "
        'run.to_pandas("metric") has all.'
    )


def test_names_beyond_all_bounds_are_counted() -> None:
    facts = noted({f"loss{n}": 1.0 for n in range(9)}, {f"m{n}": 1.0 for n in range(10_065)})
    assert facts["losses_not_drawn"] == (
        "1 other loss is not drawn: loss8; 1 value of further names is not counted. run.to_pandas("
        '"metric") has all.'
    )
    facts = noted({f"norm/layer{n}": 1.0 for n in range(8)} | {f"loss{n}": 1.0 for n in range(8)})
    assert (facts["losses_not_drawn"], facts["others_not_drawn"]) == ("", "")


def test_the_table_of_runs_has_the_loss_first() -> None:
    norms = {f"norm/layer{n}": 1.0 for n in range(5)}
    metrics = {**norms, "val_loss": 0.5, "loss": 0.25}
    summary = RunSummary("first", 1, status="finished", metrics=metrics)
    assert run_rows([summary])["metrics"] == ["loss 0.25, val_loss 0.5, norm/layer0 1"]
