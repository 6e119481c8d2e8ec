"""`distlab.launch`: workers for a notebook, with real engines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from IPython.core.interactiveshell import InteractiveShell
from zmq.utils.monitor import recv_monitor_message

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClusterError,
    MissingExtraError,
    WorkerError,
)
from distlab.integrations.ipyparallel import engines, magic
from distlab.integrations.ipyparallel.cluster import Cluster
from tests.integrations.clusters import stop_and_leave_nothing
from tests.launching.real_processes import is_gone, wait_for

TRAIN = """
import numpy as np, jax.numpy as jnp
import distlab as dl
from distlab.processes import group

strategy = dl.MultiWorkerMirroredStrategy()
me = group.current().index

def train(steps, fail=None):
    for step in range(steps):
        if step == 1 and me == 1 and fail is not None:
            fail()
        ones = lambda x: dl.get_replica_context().all_reduce("SUM", x)
        total = strategy.run(ones, args=(jnp.ones(3),))
        value = float(np.asarray(strategy.experimental_local_results(total)[0])[0])
    return value
"""


def value_of(name: str) -> Any:
    """Returns a variable of the worker in which this runs; None where there is none."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell.user_ns.get(name)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with dl.launch(workers=2, devices=2) as started:
        yield started


def test_a_function_runs_on_all_workers(cluster: Cluster) -> None:
    def place(word: str, *, times: int) -> tuple[int, str]:
        import json
        import os

        return json.loads(os.environ["TF_CONFIG"])["task"]["index"], word * times

    assert cluster.run(place, "ab", times=2) == [(0, "abab"), (1, "abab")]
    assert os.getpid() not in cluster.run(os.getpid)
    assert "TF_CONFIG" not in os.environ
    assert repr(cluster).startswith("Cluster(2 workers with 2 CPU devices each on ")


def test_strangers_on_the_machine_hear_no_output(cluster: Cluster) -> None:
    (file,) = Path(cluster._engines._folder).glob("security/*-client.json")
    about = json.loads(file.read_text())
    with zmq.Context() as context, context.socket(zmq.SUB) as stranger:
        stranger.subscribe(b"")
        with stranger.get_monitor_socket() as seen:
            seen.rcvtimeo = 10_000
            stranger.connect(f"{about['interface']}:{about['iopub']}")
            events = iter(lambda: recv_monitor_message(seen)["event"], None)
            ends = {zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED}
            assert next(event for event in events if event in ends) == zmq.EVENT_DISCONNECTED
            stranger.disable_monitor()


def test_output_and_values_of_a_cell_have_their_workers_name(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.execute("import os, sys\nprint('one\\ntwo')\nprint('no', file=sys.stderr)\n6 * 7")
    printed = capsys.readouterr()
    for worker in range(2):
        for line in ("one", "two", "42"):
            assert f"[worker-{worker}] {line}\n" in printed.out
        assert f"[worker-{worker}] no\n" in printed.err


def test_the_magic_runs_a_cell_on_all_workers_or_on_some(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    magic.workers("", "mine = 5")
    magic.workers("1", "print(mine)")
    assert capsys.readouterr().out == "[worker-1] 5\n"
    for line in ("2", "first", "-1"):
        with pytest.raises(magic.WorkersError, match="from 0 to 1"):
            magic.workers(line, "")


def test_launch_adds_the_magic_to_a_notebook(cluster: Cluster) -> None:
    shell: Any = InteractiveShell.instance()
    try:
        magic.offer(cluster)
        assert "workers" in shell.magics_manager.magics["cell"]
    finally:
        magic.withdraw(cluster)
        InteractiveShell.clear_instance()


def test_an_error_on_one_worker_is_raised_with_its_traceback(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = "import os\nif '\"index\": 1' in os.environ['TF_CONFIG']: raise KeyError('lost key')"
    with pytest.raises(WorkerError, match="KeyError: 'lost key'") as raised:
        cluster.execute(cell)
    assert raised.value.worker == "worker 1"
    printed = capsys.readouterr().err
    assert printed.startswith("[worker-1]\n")
    assert "KeyError" in printed
    with pytest.raises(WorkerError, match="ZeroDivisionError"):
        cluster.run(lambda: 1 / 0)
    assert capsys.readouterr().err.count("ZeroDivisionError: division by zero") <= 2


def test_a_failure_before_joining_ends_the_others_wait(
    cluster: Cluster,
) -> None:
    with pytest.raises(WorkerError, match="OSError: no data here"):
        cluster.execute(
            "import os\n"
            "if '\"index\": 0' in os.environ['TF_CONFIG']: raise OSError('no data here')\n"
            "import distlab as dl\n"
            "dl.MultiWorkerMirroredStrategy()"
        )


def test_a_restart_after_a_failure_joins_the_workers_again(cluster: Cluster) -> None:
    cluster.execute(TRAIN + "kept = train(2)")
    with pytest.raises(WorkerError, match=r"worker 1 on .*: ValueError: bad batch"):
        cluster.execute("def bad(): raise ValueError('bad batch')\ntrain(3, bad)")
    cluster.restart()
    cluster.execute(TRAIN + "again = train(2)")
    assert cluster.run(value_of, "kept") == [4.0, 4.0]  # from before the failure
    assert cluster.run(value_of, "again") == [4.0, 4.0]
    assert cluster.generation >= 1


def test_a_killed_worker_is_named_and_replaced(cluster: Cluster) -> None:
    cluster.restart()
    cluster.execute(TRAIN + "before = train(1)")
    with pytest.raises(WorkerError, match=r"worker 1 on .*process has ended"):
        cluster.execute(
            "import os, signal\ndef die(): os.kill(os.getpid(), signal.SIGKILL)\ntrain(3, die)"
        )
    with pytest.raises(ClusterError, match="worker 1 is lost"):
        cluster.run(os.getpid)
    cluster.restart()
    cluster.execute(TRAIN + "after = train(40)")  # more steps than may be in flight
    assert cluster.run(value_of, "before") == [4.0, None]  # who lived keeps what it has
    assert cluster.run(value_of, "after") == [4.0, 4.0]


def interrupted_when(condition: Callable[[], object], call: Callable[[], object]) -> None:
    """Sends Ctrl-C to this process once a condition is true, while a call runs."""

    def interrupt() -> None:
        wait_for(condition)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            call()
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_workers_that_wait_for_each_other(
    cluster: Cluster, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.restart()
    cluster.execute(TRAIN + "train(1)")
    ready = tmp_path / "ready"
    interrupted_when(
        ready.exists,
        lambda: cluster.execute(
            "import pathlib, time\n"
            "if me == 1:\n"
            f"    pathlib.Path({str(ready)!r}).touch()\n"
            "    time.sleep(600)\n"
            "train(2)"
        ),
    )
    assert "Interrupted. The workers may be at different steps" in capsys.readouterr().err
    cluster.restart()
    assert cluster.run(value_of, "me") == [0, 1]


def test_a_stopped_cluster_leaves_no_process_and_no_port(cluster: Cluster) -> None:
    stop_and_leave_nothing(cluster)


def test_a_killed_kernel_leaves_no_process() -> None:
    program = (
        "import os, sys, distlab as dl, psutil\n"
        "cluster = dl.launch(workers=1)\n"
        "print(*[child.pid for child in psutil.Process().children(recursive=True)], flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as kernel:  # fmt: skip
        assert kernel.stdout is not None
        started = [int(word) for word in kernel.stdout.readline().split()]
        assert len(started) > 2
        kernel.kill()
    wait_for(lambda: all(is_gone(pid) for pid in started), "the end of all processes")


def test_bad_arguments_are_refused_before_anything_starts() -> None:
    with pytest.raises(ArgumentValueError, match="workers must be at least 1, got 0"):
        dl.launch(workers=0)
    with pytest.raises(ArgumentTypeError, match="workers must be a whole number"):
        dl.launch(workers=True)
    with pytest.raises(ArgumentTypeError, match="devices must be a whole number"):
        dl.launch(devices="4")  # type: ignore[call-overload]
    with pytest.raises(ArgumentTypeError, match="engines must be the name"):
        dl.launch(engines=3)  # type: ignore[call-overload]


def test_without_ipyparallel_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlab.integrations.launch.find_spec", {}.get)
    with pytest.raises(MissingExtraError, match=r"distlab\[cluster\]"):
        dl.launch()


def test_remote_workers_send_their_events_to_the_notebook(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")  # not what the engine is named

    def record() -> int:
        import os
        import pathlib
        import tempfile

        import jax.numpy as jnp

        import distlab as dl

        os.chdir(tempfile.mkdtemp())
        with dl.record("runs/x") as recording:
            for number in range(5):
                dl.MirroredStrategy().run(lambda x: x + 1, args=(jnp.float32(number),))
                recording.log(number=number)
        return len([*pathlib.Path().iterdir()])

    record.__module__ = "__main__"  # engines that start in this folder do not find the tests
    with dl.launch(workers=1) as cluster:
        assert cluster.run(record) == [0]
        (worker,) = cluster.run(os.getpid)
    with dl.Run.open(tmp_path / "runs" / "x") as run:
        assert (run.summary()["status"], run.summary()["steps"]) == ("finished", 5)
        assert run.meta["process"] == worker


def test_another_launcher_has_the_default_profiles_settings(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = tmp_path / "profile_default"
    profile.mkdir()
    (profile / "ipcluster_config.py").write_text(
        'c = get_config()\nc.SSHEngineSetLauncher.engines = {"node-1": 2}\n'
    )
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    given = engines.as_configured("ssh")
    assert given["engines"] == "ssh"
    assert given["config"].SSHEngineSetLauncher.engines == {"node-1": 2}
