"""Advice names the fault of each program, and finds none in clean ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import distlab as dl
from distlab.advice import CAUSES, Advice, advise
from distlab.recording import RingRecorder
from tests.advice.lines import code_at
from tests.advice.loop_programs import FAULTS as OF_LOOPS
from tests.advice.programs import CLEAN, FAULTS, Program
from tests.advice.wrong_programs import WRONG
from tests.patience import attempts, measured

CODE_TO_CHANGE = {
    "host_transfer": r"\.run\(|numpy|np\.",
    "input_bound": r"distribute_dataset",
    "large_reduction": r"reduce|gather",
    "many_reductions": r"reduce\(",
    "memory_imbalance": r"Variable\(",
    "recompilation": r"def |lambda",
    "repeated_reduction": r"reduce\(",
    "slow_algorithm": r"MirroredStrategy\(",
    "slow_replica": r"def ",
    "uneven_batch": r"distribute_dataset",
}
"""Code in the line that advice names."""


def found(program: Program, folder: Path) -> list[Advice]:
    with dl.record(folder / "run", overwrite=True) as recording:
        program.run(recording)
    with dl.Run.open(folder / "run") as run:
        return advise(run)


def test_every_cause_is_planted_here_or_elsewhere() -> None:
    # Recording's cost depends on the machine: test_finders has it. Of several processes
    # test_slow_worker has the causes, of wrong results test_wrong_results, and of programs on
    # meshes test_mesh_programs.
    elsewhere = {"repeated_work", "undivided_array", "sliced_gather", "gathered_batch"}
    elsewhere |= {"recording_cost", "slow_worker", "slow_worker_input", "sparse_gradient"}
    elsewhere |= {cause for _, cause, _ in WRONG.values()}
    elsewhere |= {cause for _, cause, _ in OF_LOOPS.values()}  # test_loop
    assert {program.cause for program in FAULTS} == set(CAUSES) - elsewhere


@pytest.mark.timeout(600)  # some of the programs run again
def test_faults_are_named_with_the_right_subject(recorder: RingRecorder, tmp_path: Path) -> None:
    missed: dict[str, list[tuple[str, str]]] = {}
    for program in FAULTS:
        # On a machine that does other things as well a profile may come at a bad moment.
        for _ in attempts():
            advice = found(program, tmp_path / program.name)
            if is_named(program, advice):
                break
        else:
            missed[program.name] = [(one.cause, one.subject) for one in advice]
        for one in advice:
            assert one.cause in CAUSES
            assert one.text.endswith(".")
            assert one.remedy.endswith(".")
            assert one.evidence
            assert 0 <= one.share <= 1
            if one.cause in CODE_TO_CHANGE and is_named(program, [one]):
                assert re.search(CODE_TO_CHANGE[one.cause], code_at(one.source)), one
    assert len(missed) <= 1, missed


def is_named(program: Program, advice: list[Advice]) -> bool:
    return any(
        one.cause == program.cause and one.subject.startswith(program.subject) for one in advice
    )


@pytest.mark.parametrize("program", CLEAN, ids=lambda p: p.name)
@measured
def test_a_clean_program_gets_no_advice(
    program: Program, recorder: RingRecorder, tmp_path: Path
) -> None:
    assert found(program, tmp_path) == []
