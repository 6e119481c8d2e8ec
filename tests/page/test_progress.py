"""What the Overview says of a run's steps."""

from __future__ import annotations

from distlab.folds import Folds
from distlab.page.facts.progress import ProgressFacts, progress_facts
from tests.recording import samples


def progress(folds: Folds, *, live: bool) -> ProgressFacts:
    return progress_facts(folds.columns("steps"), folds.columns("coordination"), live=live)


def test_steps_that_workers_take_in_their_processes_are_not_said_to_be_none() -> None:
    folds = Folds()
    folds.add([samples.run(), samples.closures(400)])
    told = progress(folds, live=False)
    assert (told["steps"], told["progress"]) == ("\u2013", None)
    assert told["eta"] == "400 functions done by workers in all: see Parameter servers"
    folds.add([samples.step(0)])
    assert progress(folds, live=True)["steps"] == "1"


def test_a_run_that_has_not_begun_has_no_steps() -> None:
    folds = Folds()
    folds.add([samples.run()])
    assert progress(folds, live=True)["steps"] == "0"
