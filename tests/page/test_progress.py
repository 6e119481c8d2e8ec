"""The texts of the Overview about a run's steps."""

from __future__ import annotations

from typing import Literal

from msgspec import structs

from distlab.events import Loop, Step
from distlab.folds import Folds
from distlab.page.facts import Facts
from distlab.page.facts.progress import progress_facts
from tests.recording import samples
from tests.synthetic import START_NS, beginning


def progress(folds: Folds, *, live: bool, now_s: float | None = None) -> Facts:
    steps, coordination = folds.columns("steps"), folds.columns("coordination")
    return progress_facts(steps, coordination, live=live, now_s=now_s)


def step(number: int, seconds: float) -> Step:
    return structs.replace(samples.step(number), time_ns=START_NS + round(seconds * 1e9))


def loop(state: Literal["running", "paused"], seconds: float) -> Loop:
    time_ns = START_NS + round(seconds * 1e9)
    return Loop(time_ns=time_ns, loop=0, name="training", state=state, position=0)


def running(total_steps: int | None = 1_000) -> Folds:
    """Ten steps a second for 20 s."""
    folds = Folds()
    folds.add(beginning(total_steps=total_steps))
    folds.add([step(n, n / 10) for n in range(201)])
    return folds


def texts(found: Facts) -> list[object]:
    return [found[name] for name in ("rate", "rate_note", "examples_rate", "eta")]


def test_a_run_that_takes_steps_has_its_rate_and_time_left() -> None:
    rate, note, _, eta = texts(progress(running(), live=True, now_s=20.4))
    assert (rate, note, eta) == ("10.0", "over the last 2 s", "about 1 min 20 s left")


def test_a_paused_run_has_no_rate_and_no_time_left() -> None:
    folds = running()
    folds.add([loop("paused", 20.05)])
    assert texts(progress(folds, live=True, now_s=35.0)) == ["0", "paused", "0", "35.0 s so far"]
    folds.add([loop("running", 36)])
    assert progress(folds, live=True, now_s=36.5)["rate_note"] == "no step for 16 s"
    folds.add([step(201, 36.6)])
    assert progress(folds, live=True, now_s=36.7)["rate_note"] == "over the last 2 s"


def test_a_hung_run_says_how_long_no_step_came() -> None:
    found = texts(progress(running(), live=True, now_s=35.0))
    assert found == ["0", "no step for 15 s", "0", "35.0 s so far"]
    assert progress(running(), live=False)["rate_note"] == "mean, first step to last"


def test_slow_steps_are_no_hang() -> None:
    folds = Folds()
    folds.add(beginning())
    folds.add([step(n, 10 * n) for n in range(20)])
    assert progress(folds, live=True, now_s=205.0)["rate"] == "0.10"
    assert progress(folds, live=True, now_s=250.0)["rate"] == "0"


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


def test_a_run_without_examples_has_no_rate_of_examples() -> None:
    folds = Folds()
    folds.add([*beginning(), *(structs.replace(step(n, n / 10), examples=0) for n in range(20))])
    assert progress(folds, live=False)["counts_examples"] is False
    assert progress(running(), live=False)["counts_examples"] is True
