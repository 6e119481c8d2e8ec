"""The texts of the Overview about a run's steps."""

from __future__ import annotations

from distlab.folds import Folds
from distlab.page.facts import Facts
from distlab.page.facts.progress import progress_facts
from tests.recording import samples


def progress(folds: Folds, *, live: bool) -> Facts:
    return progress_facts(folds.columns("steps"), folds.columns("coordination"), live=live)


def test_steps_in_processes_of_workers_are_not_shown_as_none() -> None:
    folds = Folds()
    folds.add([samples.run(), samples.closures(400)])
    found = progress(folds, live=False)
    assert (found["steps"], found["progress"]) == ("\u2013", None)
    assert found["eta"] == "400 functions done by workers in all: see Parameter servers"
    folds.add([samples.step(0)])
    assert progress(folds, live=True)["steps"] == "1"
    folds = Folds()
    folds.add([samples.run()])
    assert progress(folds, live=True)["steps"] == "0"
