"""`distlab launch` with real processes: output, failures, signals and exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from distlab import cli
from tests.launching.real_processes import LIMIT_S, Launched, is_gone, wait_for

Launch = Callable[..., Launched]

BEGIN = """
import json, os, signal, subprocess, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""
WAITS = """
child = subprocess.Popen(["sleep", "600"])
print("child", child.pid)
print("pid", os.getpid())
time.sleep(600)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Starts a program by `distlab launch`, with options before and arguments behind it."""

    def start(program: str, *options: str, arguments: tuple[str, ...] = ()) -> Launched:
        path = tmp_path / "program.py"
        path.write_text(BEGIN + program)
        return started.enter_context(Launched(*options, str(path), *arguments))

    with ExitStack() as started:
        yield start


def test_each_worker_knows_its_place_and_its_arguments(launch: Launch) -> None:
    run = launch(
        "print(index, os.environ['DISTLAB_DEVICES_PER_WORKER'], sys.argv[1:])",
        *("--workers", "3", "--devices", "4"),
        arguments=("--workers", "9", "x"),
    )
    assert run.end() == 0
    assert sorted(run.lines) == [
        f"[worker-{index}] {index} 4 ['--workers', '9', 'x']" for index in range(3)
    ]


def test_a_module_runs_too(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "my_training.py").write_text("import sys; print(sys.argv[1:])")
    done = subprocess.run(
        [sys.executable, "-m", "distlab", "launch", "-n", "1", "-m", "my_training", "--lr", "1"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True, text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    assert done.stdout == "[worker-0] ['--lr', '1']\n"


def test_both_streams_are_passed_on_line_by_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "sys.stdout.buffer.write(b'\\xff \\xc3\\xa9\\r\\n\\r10%\\r20%\\n\\nno end')\n"
        "print('to stderr', file=sys.stderr)"
    )
    command = [sys.executable, "-m", "distlab", "launch", "--workers", "1", str(program)]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=True)
    prefix = b"[worker-0] "
    lines = [b"\xff \xc3\xa9", b"10%", b"20%", b"", b"no end"]
    assert done.stdout.splitlines() == [prefix + line for line in lines]
    assert done.stderr == prefix + b"to stderr\n"


@pytest.mark.parametrize("sink", [">/dev/full", ">&- 2>&-"])
def test_processes_whose_output_can_not_be_written_go_on(sink: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "for number in range(20_000): print('line', number)\n"  # more than a pipe holds
        f"open({str(tmp_path / 'ended')!r}, 'w').close()"
    )
    command = shlex.join([sys.executable, "-m", "distlab", "launch", "-n", "1", str(program)])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {sink}"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (tmp_path / "ended").exists()
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_failure_ends_the_others_and_is_the_exit_code(launch: Launch) -> None:
    run = launch("if index == 1: sys.exit(3)\n" + WAITS, "--workers", "2", "--grace", "0.5")
    assert run.end() == 3
    told = [line for line in run.lines if line.startswith("[distlab launch]")]
    assert told[0].startswith("[distlab launch] worker-1 failed with exit code 3 after ")
    assert told[1] == "[distlab launch] worker-0: 0.5 s to end"
    assert told[2] == "[distlab launch] worker-0 was ended by SIGTERM"
    assert all(is_gone(pid) for pid in run.numbers("child "))


def test_others_may_end_by_themselves_within_the_grace(launch: Launch) -> None:
    run = launch(
        "print('ready')\nif index == 1: os.kill(os.getpid(), signal.SIGKILL)\nprint('saved')",
        *("--workers", "2", "--grace", "100"),
    )
    assert run.end() == 128 + signal.SIGKILL
    assert "[worker-0] saved" in run.lines
    assert not [line for line in run.lines if "was ended by" in line]


def test_a_stopped_worker_and_one_that_ignores_sigterm_are_killed(launch: Launch) -> None:
    run = launch(
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit('bad batch'))\n" + WAITS,
        *("--workers", "3", "--grace", "0.2"),
    )
    run.wait_for_line(*(f"[worker-{index}] pid" for index in range(3)))
    failing, stopped, _ = run.numbers("pid ")
    os.kill(stopped, signal.SIGSTOP)
    os.kill(failing, signal.SIGUSR1)
    assert run.end() == 1
    assert any(line.endswith("bad batch") for line in run.lines)
    assert sum(line.endswith("was ended by SIGKILL") for line in run.lines) == 2
    assert all(is_gone(pid) for pid in (*run.numbers("child "), *run.numbers("pid ")))


def test_a_signal_ends_all_and_what_they_started(launch: Launch) -> None:
    run = launch(WAITS, "--workers", "2", "--grace", "100")
    run.wait_for_line("[worker-0] pid", "[worker-1] pid")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 128 + signal.SIGTERM
    assert all(is_gone(pid) for pid in (*run.numbers("child "), *run.numbers("pid ")))


def test_a_second_interrupt_waits_for_nobody(launch: Launch) -> None:
    run = launch(
        "signal.signal(signal.SIGINT, lambda *_: print('asked'))\n" + WAITS,
        *("--workers", "2", "--grace", "1000"),
    )
    run.wait_for_line("[worker-0] pid", "[worker-1] pid")
    run.process.send_signal(signal.SIGINT)
    run.wait_for_line("[worker-0] asked", "[worker-1] asked")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130


def test_a_killed_launcher_leaves_no_process(launch: Launch) -> None:
    run = launch(WAITS, "--workers", "2")
    run.wait_for_line("[worker-0] pid", "[worker-1] pid")
    run.process.kill()
    left = [*run.numbers("child "), *run.numbers("pid ")]
    assert len(left) == 4
    wait_for(lambda: all(is_gone(pid) for pid in left), "the end of all processes")


def test_what_a_worker_leaves_behind_ends_with_it(launch: Launch) -> None:
    run = launch("print('child', subprocess.Popen(['sleep', '600']).pid)", "--workers", "1")
    assert run.end() == 0
    assert [is_gone(pid) for pid in run.numbers("child ")] == [True]


def test_all_are_started_again_after_a_failure(launch: Launch) -> None:
    run = launch(
        "generation = int(os.environ['DISTLAB_GENERATION'])\n"
        "print('generation', generation)\n"
        "if generation < 2 and index == 0: sys.exit(5)",
        *("--workers", "2", "--max-restarts", "2", "--grace", "100"),
    )
    assert run.end() == 0
    assert sorted(run.numbers("generation ")) == [0, 0, 1, 1, 2, 2]
    assert "[distlab launch] starts all workers again, restart 2 of 2" in run.lines


def test_restarts_come_to_an_end(launch: Launch) -> None:
    run = launch("sys.exit(6)", "--workers", "1", "--max-restarts", "1")
    assert run.end() == 6
    assert sum("failed with exit code 6" in line for line in run.lines) == 2


def test_bad_arguments_are_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, rule in [
        (["no_such.py"], "there is no file 'no_such.py'"),
        (["--workers", "0", "x.py"], "must be a whole number from 1 to 4096, got '0'"),
        (["--devices", "two", "x.py"], "must be a whole number from 1 to 4096, got 'two'"),
        (["--grace", "-1", "x.py"], "must be a number of seconds, at least 0, got '-1'"),
        (["--max-restarts", "-1", "x.py"], "must be a whole number of at least 0, got '-1'"),
        (["--workers", "2"], "the following arguments are required: PROGRAM"),
    ]:
        try:
            code: object = cli.main(["launch", *arguments])
        except SystemExit as ended:  # by argparse
            code = ended.code
        assert code == 2
        assert rule in capsys.readouterr().err
