"""The texts of a page, made from columns.

A fact is a text, a number or a flag with a name. The page's HTML and scripts refer to
facts by these names; tests/page/test_contract.py compares both.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from distlab.events import Advice
from distlab.folds import Folds, pace_of
from distlab.page.facts.amounts import Facts
from distlab.page.facts.batch import batch_facts
from distlab.page.facts.cards import (
    INDEX,
    advice_facts,
    capture_button_facts,
    capture_facts,
    loop_facts,
    placement_facts,
    program_facts,
    recording_facts,
    reduction_facts,
    runs_facts,
)
from distlab.page.facts.devices import device_facts
from distlab.page.facts.metrics import metric_facts
from distlab.page.facts.progress import halt_text, progress_facts
from distlab.page.facts.run import run_facts
from distlab.page.facts.servers import server_facts
from distlab.page.facts.workers import worker_facts

__all__ = [
    "INDEX",
    "Facts",
    "batch_facts",
    "capture_button_facts",
    "collect",
    "device_facts",
    "loop_facts",
    "runs_facts",
]


def collect(
    folds: Folds,
    *,
    whole: Folds,
    live: bool,
    living: AbstractSet[int] | None = None,
    caught_up: bool,
    read_share: float | None,
    name: str,
    now_s: float | None = None,
    batch: int | None,
    dataset: int | None,
    capture: int | None = None,
    advice: Sequence[Advice],
    capture_state: str,
) -> Facts:
    """Returns the facts of a run's page."""
    header = whole.columns("header")
    pace = pace_of(whole.columns("steps"), now_s)
    run = run_facts(
        header,
        live=live,
        caught_up=caught_up,
        read_share=read_share,
        name=name,
        halted=halt_text(pace),
    )
    coordinates = whole.columns("coordination")["strategy"] is not None
    any_step = whole.columns("steps")["steps"] > 0 or coordinates
    # A moment gone by is shown as it was then: live.
    shown_live = folds is not whole or run["status"] == "live"
    return {
        **run,
        **recording_facts(header, whole.lost, folds.evidence.last_cost),
        **worker_facts(whole.columns("workers"), living),
        **server_facts(
            folds.columns("coordination"),
            whole.columns("coordination"),
            len(whole.columns("batches")["number"]),
            ended=run["status"] not in {"live", "reading"},
        ),
        **progress_facts(
            folds.columns("steps"),
            folds.columns("coordination"),
            live=shown_live,
            now_s=now_s if folds is whole else None,
            counted_steps=not folds.columns("programs")["observed"],
        ),
        **metric_facts(folds.columns("metrics")),
        **device_facts(folds.columns("devices")),
        **capture_facts(folds.capture(capture), whole.columns("workers")),
        **placement_facts(folds.columns("placement")),
        **reduction_facts(folds.columns("reductions")),
        **program_facts(folds.columns("programs")),
        **batch_facts(folds.batch(batch, dataset), folds.columns("batches"), dataset, wanted=batch),
        **advice_facts(advice, any_step=any_step, live=shown_live),
        **capture_button_facts(capture_state),
    }
