"""Real processes join a cluster, agree through the coordination service, and end."""

from __future__ import annotations

import jax
import pytest

from distlab.errors import BackendStartedError
from distlab.processes import group, joining
from tests.processes.cluster import Outcome, run_workers

LOOK = """
import distlab as dl
from distlab.processes import group

strategy = dl.MultiWorkerMirroredStrategy(devices_per_worker=2)
processes = group.current()
show("devices", strategy.device_names)
host = processes.worker.host
show("all", [(w.name, w.task, w.devices, w.host == host) for w in processes.workers])
show("index", processes.index)
show("same", dl.MultiWorkerMirroredStrategy().mesh is strategy.mesh)
show("local", dl.MirroredStrategy(["CPU:0", "CPU:1"]).device_names)
show("texts", [processes.exchange("x", f"{n} of {processes.index}") for n in range(3)])
show("chief's", processes.from_chief("seed", f"seed of {processes.index}"))
processes.kv.set(f"note/{processes.index}", "here")
processes.barrier("noted")
show("below", processes.kv.below("note"))
show("found", [processes.kv.find("note/0"), processes.kv.find("note/9")])
try:
    if processes.index == 1:
        processes.exchange("alone", "", timeout=0.2)
except dl.errors.WorkerError as error:
    show("missed", [error.worker, error.message])
show("limit", processes.kv.awaited("nothing", 0.1))
processes.fail(dl.errors.WorkerError("worker 7", "far away", "killed"))
try:
    processes.barrier("after a failure")
except dl.errors.WorkerError as error:
    show("failure", str(error))
"""


@pytest.fixture(scope="module")
def looked() -> list[Outcome]:
    return run_workers(LOOK, workers=2)


def test_a_program_of_one_process_has_no_group() -> None:
    assert group.current() is None
    joining.leave()  # does nothing
    assert group.current() is None


def test_joining_comes_before_the_devices() -> None:
    jax.devices()
    with pytest.raises(BackendStartedError, match="before JAX starts its devices"):
        joining.join(["a:1", "b:1"], ["worker:0", "worker:1"], 0, cpu_devices=1)


def test_each_process_knows_all_workers_and_their_devices(looked: list[Outcome]) -> None:
    names = [f"worker {worker} CPU:{device}" for worker in range(2) for device in range(2)]
    for index, outcome in enumerate(looked):
        assert outcome.code == 0
        assert outcome.shown["devices"] == names
        assert outcome.shown["all"] == [
            ["worker 0", "worker:0", 2, True],
            ["worker 1", "worker:1", 2, True],
        ]
        assert outcome.shown["index"] == index
        assert outcome.shown["same"] is True
        assert outcome.shown["local"] == names[2 * index : 2 * index + 2]


def test_texts_are_exchanged_and_waits_end(looked: list[Outcome]) -> None:
    for outcome in looked:
        assert outcome.shown["texts"] == [[f"{n} of 0", f"{n} of 1"] for n in range(3)]
        assert outcome.shown["chief's"] == "seed of 0"
        assert outcome.shown["below"] == {"0": "here", "1": "here"}
        assert outcome.shown["found"] == ["here", None]
        assert outcome.shown["limit"] is None
        assert outcome.shown["failure"] == "worker 7 on far away: killed"
    worker, message = looked[1].shown["missed"]
    assert worker == "worker 0"
    assert '"alone 0"' in message  # in time, or before the other's program had ended


def test_all_workers_need_the_same_number_of_devices() -> None:
    outcomes = run_workers(
        """
        import distlab as dl

        try:
            dl.MultiWorkerMirroredStrategy(devices_per_worker=1 + RANK)
        except dl.errors.ClusterError as error:
            show("error", str(error))
        """,
        workers=2,
    )
    for outcome in outcomes:
        assert "same number of devices, got worker 0 1, worker 1 2" in outcome.shown["error"]
        assert outcome.code == 0


def test_a_worker_that_never_starts_is_named_on_all_others() -> None:
    outcomes = run_workers(
        """
        import distlab as dl

        if RANK != 1:
            try:
                dl.MultiWorkerMirroredStrategy()
            except dl.errors.ClusterError as error:
                show("error", str(error))
        """,
        workers=3,
        environment={"DISTLAB_START_SECONDS": "4"},
    )
    for outcome in (outcomes[0], outcomes[2]):
        assert "worker:1 did not come" in outcome.shown["error"]
    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
