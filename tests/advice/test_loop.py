"""Advice names what is wrong with a loop, and no near-twin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distlab as dl
from distlab.advice import Advice, advise
from distlab.events import Event, OwnPython
from distlab.folds import Evidence
from distlab.recording import RingRecorder
from tests.advice.lines import code_at
from tests.advice.loop_programs import CLEAN, FAULTS, Loop, jitted_in_each_step

CODE_TO_CHANGE = {
    "eager_mode": r"run_functions_eagerly|run_eagerly|\.run\(",
    "mostly_compiling": r"\.run\(",
}
"""Code in the line that advice names."""

OF_LOOPS = {"eager_mode", "nearly_empty_batches", "mostly_compiling", "recompilation", "host_bound"}


def found(program: Loop, folder: Path) -> list[Advice]:
    with dl.record(folder) as recording:
        program(recording)
    with dl.Run.open(folder) as run:
        return advise(run)


@pytest.mark.slow
@pytest.mark.parametrize("cause", sorted({cause for _, cause, _ in FAULTS.values()}))
def test_faults_of_loops_are_named_with_their_subject_and_line(
    cause: str, recorder: RingRecorder, tmp_path: Path
) -> None:
    missed = {}
    faults = {name: fault for name, fault in FAULTS.items() if fault[1] == cause}
    for name, (program, _, subject) in faults.items():
        advice = found(program, tmp_path / name)
        own = [one for one in advice if one.cause == cause and one.subject.startswith(subject)]
        if len(own) != 1:
            missed[name] = [(one.cause, one.subject) for one in advice]
            continue
        assert own[0].source.startswith("loop_programs.py:")
        assert re.search(CODE_TO_CHANGE.get(cause, ""), code_at(own[0].source)), (name, own[0])
        assert own[0].text.endswith(".")
        assert own[0].saves_s > 0
    # Real programs on a machine that does other things as well: one may come at a bad moment.
    assert len(missed) <= 1, missed


@pytest.mark.slow
def test_the_line_for_which_the_devices_wait_is_known(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    """The cause depends on how busy the machine is; the line does not."""
    with dl.record(tmp_path / "run") as recording:
        jitted_in_each_step(recording)
    evidence = Evidence()
    with dl.Run.open(tmp_path / "run") as run:
        known = [one for one in run.since(0).events if isinstance(one, Event)]
        evidence.add([one for one in known if type(one) in Evidence.KINDS])
    columns = evidence.columns()
    assert columns["run_calls"]
    spent = 0
    for stack, ns in columns["own_python"].items():
        *_, last = [one for one in stack.split(" > ") if one != OwnPython.COMPILES]
        if last.startswith("loop_programs.py") and "assert rate(" in code_at(last):
            spent += ns
    assert spent > 0.25 * sum(columns["own_python"].values())


@pytest.mark.slow
@pytest.mark.parametrize("name", CLEAN)
def test_near_twins_are_not(name: str, recorder: RingRecorder, tmp_path: Path) -> None:
    told = [(one.cause, one.subject) for one in found(CLEAN[name], tmp_path / "run")]
    assert [one for one in told if one[0] in OF_LOOPS] == []
