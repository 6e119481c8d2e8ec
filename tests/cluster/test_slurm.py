"""SlurmClusterResolver: the step that srun started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from distlab.cluster_resolver import SlurmClusterResolver
from distlab.errors import ClusterError, ClusterSpecError
from tests.cluster.fake_clusters import set_environment

STEP = {
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "5",
    "SLURM_STEP_NODELIST": "t02n[13,41,43,46-47]",
    "SLURM_STEP_TASKS_PER_NODE": "1(x5)",
    "SLURM_DISTRIBUTION": None,
    "SLURMD_NODENAME": None,
    "CUDA_VISIBLE_DEVICES": "0",
}


def resolve(
    monkeypatch: pytest.MonkeyPatch, step: dict[str, str | None] | None = None, **options: Any
) -> SlurmClusterResolver:
    set_environment(monkeypatch, {**STEP, **(step or {})})
    return SlurmClusterResolver(**options)


def two_nodes(rank: int, **more: str | None) -> dict[str, str | None]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NODELIST": "n[1-2]",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
        **more,
    }


def test_ranks_go_over_the_jobs_in_alphabetical_order(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = resolve(monkeypatch, jobs={"worker": 4, "ps": 1})
    assert resolver.cluster_spec().as_dict() == {
        "ps": ["t02n13:8888"],
        "worker": ["t02n41:8888", "t02n43:8888", "t02n46:8888", "t02n47:8888"],
    }
    assert resolver.get_task_info() == ("worker", 2)
    assert resolver.master() == "grpc://t02n46:8888"
    assert resolver.master("ps", 0, "http") == "http://t02n13:8888"


def test_the_own_task_is_known_after_the_cluster_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolver = resolve(monkeypatch)
    assert (resolver.get_task_info(), resolver.master()) == ((None, None), "")
    resolver.cluster_spec()
    assert (resolver.task_type, resolver.task_id) == ("worker", 3)


def test_the_tasks_of_a_node_divide_its_ports_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, gpus in [(0, "0,1"), (3, "2,3")]:
        resolver = resolve(monkeypatch, two_nodes(rank), port_base=7000)
        workers = resolver.cluster_spec().as_dict()["worker"]
        assert workers == ["n1:7000", "n1:7001", "n2:7000", "n2:7001"]
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpus
        assert resolver.num_accelerators() == {"GPU": 2}


def test_gpus_are_dealt_out_by_the_names_that_slurm_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = resolve(monkeypatch, two_nodes(1, CUDA_VISIBLE_DEVICES="4,5,6,7"))
    resolver.cluster_spec()
    resolver.cluster_spec()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "6,7"


def test_a_step_without_gpus_is_a_cluster_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for visible in ("", "NoDevFiles"):
        resolver = resolve(monkeypatch, two_nodes(0, CUDA_VISIBLE_DEVICES=visible))
        assert resolver.cluster_spec().num_tasks("worker") == 4
        assert resolver.num_accelerators() == {"GPU": 0}
        assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_tasks_see_no_gpu_or_all_when_asked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"gpus_per_task": 0}, ""),
        ({"auto_set_gpu": False}, "0,1,2,3"),
    ]
    for options, seen in cases:
        resolve(monkeypatch, two_nodes(0), **options).cluster_spec()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_nodes_may_have_different_numbers_of_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    step = two_nodes(3, SLURM_STEP_TASKS_PER_NODE="1,3")
    assert resolve(monkeypatch, step).cluster_spec().job_tasks("worker") == [
        "n1:8888",
        "n2:8888",
        "n2:8889",
        "n2:8890",
    ]


def test_tasks_per_node_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    step = two_nodes(0, SLURM_STEP_TASKS_PER_NODE=None)
    for given in (2, {"n2": 2, "n1": 2}):
        cluster = resolve(monkeypatch, step, tasks_per_node=given).cluster_spec()
        assert cluster.job_tasks("worker") == ["n1:8888", "n1:8889", "n2:8888", "n2:8889"]


def test_nodes_keep_slurms_order_so_that_each_rank_gets_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = two_nodes(1, SLURM_STEP_NODELIST="n[9-10]", SLURMD_NODENAME="n9")
    cluster = resolve(monkeypatch, step).cluster_spec()
    assert cluster.job_tasks("worker") == ["n9:8888", "n9:8889", "n10:8888", "n10:8889"]


def test_ranks_may_go_over_the_nodes_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    # As Slurm 22.05 did for srun -N2 -n4 -m cyclic: ranks 0, 2, 3 on n10 and 1 on n11.
    step = two_nodes(
        2,
        SLURM_STEP_NODELIST="n[10-11]",
        SLURM_STEP_TASKS_PER_NODE="3,1",
        SLURM_DISTRIBUTION="cyclic:block",
        SLURMD_NODENAME="n10",
        CUDA_VISIBLE_DEVICES="0,1,2",
    )
    cluster = resolve(monkeypatch, step).cluster_spec()
    assert cluster.job_tasks("worker") == ["n10:8888", "n11:8888", "n10:8889", "n10:8890"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_what_does_not_fit_the_step_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = two_nodes(0, SLURM_DISTRIBUTION="plane")
    cases: list[tuple[dict[str, str | None], dict[str, Any], str]] = [
        (plane, {}, "by 'plane', which does not determine"),
        ({"SLURM_PROCID": None}, {}, "SLURM_PROCID.*Start the program with srun"),
        ({"SLURM_STEP_NODELIST": None}, {}, "SLURM_STEP_NODELIST.*with srun"),
        ({}, {"jobs": {"worker": 3}}, "have 3 tasks, and the Slurm step has 5"),
        ({}, {"gpus_per_task": 2}, "need 2, and a node has 1"),
    ]
    for step, options, message in cases:
        with pytest.raises(ClusterError, match=message):
            resolve(monkeypatch, step, **options)


def test_fewer_gpus_than_tasks_need_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ClusterSpecError, match=r"2 tasks .* can't divide 1 GPUs.*gpus_per_task=0"):
        resolve(monkeypatch, two_nodes(0, CUDA_VISIBLE_DEVICES="0"))


def nvidia_smi(monkeypatch: pytest.MonkeyPatch, folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def test_gpus_are_counted_by_nvidia_smi_when_cuda_names_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvidia_smi(monkeypatch, tmp_path, "echo 'GPU 0: H100'; echo 'GPU 1: H100'")
    resolver = resolve(monkeypatch, two_nodes(1, CUDA_VISIBLE_DEVICES=None))
    resolver.cluster_spec()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"


def test_without_nvidia_smi_there_are_no_gpus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    resolver = resolve(monkeypatch, {"CUDA_VISIBLE_DEVICES": None})
    assert resolver.num_accelerators() == {"GPU": 0}


def test_an_nvidia_smi_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvidia_smi(monkeypatch, tmp_path, "exit 9")
    with pytest.raises(ClusterError, match=r"status 9.*Pass gpus_per_node="):
        resolve(monkeypatch, {"CUDA_VISIBLE_DEVICES": None})
