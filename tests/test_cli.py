"""The command line: help, versions, bad options, errors in one line."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import jax
import pytest
from packaging.requirements import Requirement

import distlab
from distlab import cli
from distlab._cli import dashboard, doctor, gpu, serving
from distlab_dashboard.ports import PORTS
from tests import own_process
from tests.patience import wait_until

COMMANDS = {
    "demo": "--replicas --epochs --steps --port --prefix --open --no-dashboard --exit-when-done "
    "--record",
    "launch": "--workers --devices --grace --max-restarts --dashboard --port -m PROGRAM",
    "server": "--job --index --cluster --scheduler TF_CONFIG",
    "dashboard": "RUN --port --open --address --token --view-token --prefix --origin",
    "runs": "DIR",
    "export": "RUN --output --overwrite",
    "doctor": "--gpu",
    "compare": "--help",
}


def ended(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """Returns the code with which the parser ends the command, and what was printed."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return exit_.value.code, *capsys.readouterr()


def test_help_lists_the_commands_and_their_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, _ = ended(["--help"], capsys)
    assert code == 0
    assert all(re.search(rf"^ +{name} +\w", printed, re.MULTILINE) for name in COMMANDS)
    for command, options in COMMANDS.items():
        code, printed, _ = ended([command, "--help"], capsys)
        assert code == 0
        assert [option for option in options.split() if option not in printed] == [], command
    version = f"distlab {doctor.installed_version('distlab')}\n"
    assert ended(["--version"], capsys) == (0, version, "")


def test_no_command_prints_the_five_things_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line[:2] == "  "]
    first = ["demo", "dl.record", "dashboard", "advise", "export"]
    assert [line[1].partition("(")[0] for line in lines] == first


def test_help_has_an_example_with_its_output(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (*COMMANDS, "advise"):
        _, printed, _ = ended([command, "--help"], capsys)
        (example,) = re.findall(r"^  \$ distlab (.+)\n  .*\S", printed, re.MULTILINE)
        name, *options = shlex.split(example)
        assert name == command
        assert cli._parser().parse_args([name, *options]).run is not None


def test_help_starts_neither_jax_nor_panel() -> None:
    code = (
        "import sys; from distlab.cli import main; main([]);"
        "print(sorted({'jax', 'panel', 'sklearn'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr.strip() == "[]"


def test_bad_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, rule in (
        ("demo --replicas 0", "must be a whole number of at least 1, got '0'"),
        ("demo --epochs many", "must be a whole number of at least 1, got 'many'"),
        ("demo --port 70000", "must be a whole number from 0 to 65535, got '70000'"),
        ("demo --steps 3 --epochs 1", "not allowed with argument"),
        ("dashboard", "the following arguments are required: RUN"),
        ("train", "invalid choice: 'train'"),
    ):
        code, _, said = ended(arguments.split(), capsys)
        assert code == 2
        assert rule in said


def test_errors_are_one_line_whatever_a_path_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("runs", "advise"):
        assert cli.main([command, str(tmp_path / "a\n\x1b[31mb")]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (line,) = printed.err.splitlines()
        assert line.startswith("distlab: error: ")
        assert rf"{tmp_path}/a\n\x1b[31mb" in line


def test_a_server_needs_a_place_in_a_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    for cluster, rule in (
        ([], "job_name must be one of [], got 'ps'"),
        (["--cluster", '{"ps": ["host"]}'], "an address with a port, as in host:2222"),
    ):
        assert cli.main(["server", "--job", "ps", "--index", "0", *cluster]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert rule in printed.err


def test_interrupted_work_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> Iterator[doctor.Finding]:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "CHECKS", (interrupt,))
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "distlab: interrupted\n"
    monkeypatch.setattr(sys, "stderr", None)  # as of a process that was started with it closed
    assert cli.main(["doctor"]) == 130


def test_a_missing_package_of_the_dashboard_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distlab_dashboard.server", None)
    assert cli.main(["dashboard", str(tmp_path)]) == 2
    assert "pip install 'distlab[dashboard]'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_token_of_the_environment_is_checked_and_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    distlab.record(tmp_path / "run").close()
    monkeypatch.setenv("DISTLAB_TOKEN", "short")
    for command in (["dashboard", str(tmp_path)], ["demo", "--record", str(tmp_path / "demo")]):
        assert cli.main([*command, "--port", "0"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("distlab: error: A token has at least 8 printable"), said
    assert not (tmp_path / "demo").exists()
    monkeypatch.setenv("DISTLAB_TOKEN", "of the environment")
    for given, token in ((None, "of%20the%20environment"), ("of an option", "of%20an%20option")):
        server = serving.serve(tmp_path, port=0, open_browser=False, token=given)
        try:
            assert server.url.endswith(f"/?token={token}")
            with urlopen(server.url) as answer:
                assert answer.status == 200
            with pytest.raises(HTTPError, match="401"):
                urlopen(server.url.partition("?")[0])
        finally:
            server.stop()


@pytest.mark.slow
def test_doctor_finds_what_this_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.main(["doctor"])
    report = capsys.readouterr().out
    assert f"ok    jax               {doctor.installed_version('jax')}" in report
    assert "ok    devices           8 simulated (CPU:0 to CPU:7)" in report
    assert "PJRT_NPROC=" in report
    assert code == (1 if "\nwrong " in report else 0)


def test_doctor_measures_gpus_where_there_are_some(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor", "--gpu"])
    assert "note  gpu               JAX finds none" in capsys.readouterr().out
    found = {one.subject: one for one in gpu.measured(jax.devices()[0])}  # the checks themselves
    assert list(found) == ["memory", "utilization", "ready", "operations", "capture"]
    assert (found["memory"].state, found["utilization"].state) == ("note", "note")
    assert found["operations"] == ("ok", "operations", "2.147e+09 FLOP of 2.147e+09")
    assert re.fullmatch(r"\d+% computing of a step of .* ms, in 10 steps", found["capture"].text)


def test_doctor_reports_devices_that_can_not_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = "*** Check failure stack trace: ***\n    @     0x7fa12b6f8174  PThread::PThread()\n\n"
    ended = subprocess.CompletedProcess([], -6, "", f"a warning\nF1125 env.cc:93] failed\n{stack}")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    (finding,) = doctor.devices()
    assert (finding.state, finding.text) == ("wrong", "F1125 env.cc:93] failed")
    assert "XLA_FLAGS" in finding.remedy


def test_doctor_counts_what_is_wrong_and_warnings_are_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check() -> Iterator[doctor.Finding]:
        warnings.warn("first\nsecond", stacklevel=1)
        yield doctor.Finding("note", "panel", "not installed", "install it")
        yield doctor.Finding("wrong", "jax", "not installed", "install it")

    monkeypatch.setattr(doctor, "CHECKS", (check,))
    monkeypatch.setattr(sys, "argv", ["distlab", "doctor"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert cli.main() == 1
    printed = capsys.readouterr()
    assert printed.out.endswith("-> install it\n1 thing is wrong.\n")
    assert printed.err == "distlab: warning: first\\nsecond\n"


def test_doctor_tries_the_ports_that_the_server_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def taken_below_the_last(address: str, port: int) -> str:
        tried.append(port)
        return "" if port == PORTS[-1] else "is taken"

    with monkeypatch.context() as patched:
        patched.setattr(doctor, "refusal", taken_below_the_last)
        (finding,) = doctor.ports()
    assert (finding.state, tried) == ("ok", list(PORTS))
    assert "5205 is free on 127.0.0.1 (5006 to 5204 taken)" in finding.text
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", range(port, port + 1))
        (finding,) = doctor.ports()
    assert finding.state == "wrong"
    assert "--port 0" in finding.remedy


def test_doctor_reports_what_lacks_or_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    named = ("jax<0.13,>=0.10", "numpy", "protobuf<8,>=5.28.3", "panel>=1; extra == 'dashboard'")
    versions = {"jax": "0.9.2", "numpy": "2.1"}
    monkeypatch.setattr(metadata, "requires", lambda _: [*named, "mypy; extra == 'dev'"])
    monkeypatch.setattr(doctor, "installed_version", versions.get)
    _, jax, numpy, protobuf, panel = doctor.packages()
    assert (jax.state, jax.remedy) == ("wrong", "pip install 'jax<0.13,>=0.10'")
    assert "0.9.2; distlab was tested with <0.13,>=0.10" in jax.text
    assert (numpy.state, protobuf.state) == ("ok", "wrong")
    assert (panel.state, panel.remedy) == ("note", "pip install 'distlab[dashboard]'")


def test_every_dependency_of_a_user_has_bounds() -> None:
    wanted = [
        line for line in map(Requirement, metadata.requires("distlab") or ())
        if doctor._extra_of(line) is not None
    ]  # fmt: skip
    bounds = {line.name: {bound.operator for bound in line.specifier} for line in wanted}
    assert len(bounds) > 20
    assert {name: found for name, found in bounds.items() if found != {">=", "<"}} == {}


def test_doctor_reports_a_python_that_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    (tested,) = doctor.python_version()
    assert tested.state == "ok"
    monkeypatch.setattr("sys.version_info", (3, 15, 0, "final", 0))
    (untested,) = doctor.python_version()
    assert untested.state == "wrong"
    assert "tested with 3.11 to 3.14" in untested.text


def test_runs_lists_the_newest_first_and_what_it_can_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "deeper/second"):
        with distlab.record(tmp_path / name) as run:
            run.log(**{f"norm/layer{layer}": 1.0 for layer in range(64)}, loss=0.5)
    broken = tmp_path / "broken\x1b[31m\u202e"
    broken.mkdir()
    (broken / "process-1.sqlite").write_text("no database")
    assert cli.main(["runs", str(tmp_path)]) == 0
    head, *rows, last = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["run", "started", "status"]
    assert [row.split()[0] for row in rows] == ["deeper/second", "first"]
    for row in rows:
        assert "finished" in row
        assert "loss 0.5, norm/layer0 1, norm/layer1 1" in row
    assert last.split(maxsplit=1)[0] == r"broken\x1b[31m\u202e"
    assert "  can't be read  " in last
    assert "file is not a database" in last
    assert cli.main(["runs", str(tmp_path / "none")]) == 2
    assert "lists a folder of runs" in capsys.readouterr().err


def test_runs_and_dashboard_look_three_folders_deep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    distlab.record(root / "a/b/c/d").close()
    distlab.record(tmp_path / "run").close()
    (root / "run").symlink_to(tmp_path / "run")
    looked = f"in {root} and its subfolders, 3 levels deep; links are not followed."
    assert cli.main(["runs", str(root)]) == 0
    assert f"No runs {looked}" in capsys.readouterr().out
    monkeypatch.setattr(dashboard, "wait_for_interrupt", lambda: None)
    assert cli.main(["dashboard", str(root), "--port", "0"]) == 0
    assert f"No run is {looked}" in capsys.readouterr().out


def test_a_dashboard_waits_for_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, asked = tmp_path / "runs", []

    def record() -> None:
        url = capsys.readouterr().out.split()[1]
        with urlopen(url) as answer:
            asked.append(answer.status)
        distlab.record(runs / "first").close()
        wait_until(
            lambda: b'distlab_runs{status="finished"} 1.0' in urlopen(url + "metrics").read()
        )

    monkeypatch.setattr(dashboard, "wait_for_interrupt", record)
    assert cli.main(["dashboard", str(runs), "--port", "0"]) == 0
    assert asked == [200]


def test_export_writes_a_file_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with distlab.record(tmp_path / "run") as run:
        run.log(loss=0.5, self=1.0)
    command = ["export", str(tmp_path / "run"), "-o", str(tmp_path / "trace.json")]
    assert cli.main(command) == 0
    assert re.search(r"trace\.json: \d+\.\d MB$", capsys.readouterr().out.strip())
    names = [e["name"] for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert "metric loss" in names
    assert cli.main(command) == 2
    assert "exists already" in capsys.readouterr().err
    assert cli.main([*command, "--overwrite"]) == 0
    assert cli.main([*command[:-1], ""]) == 2
    assert "is a folder. Name the file" in capsys.readouterr().err


def test_what_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    for name in ("open", "closed", "file"):
        distlab.record(tmp_path / name).close()
    (tmp_path / "closed" / "inside").mkdir()
    (tmp_path / "closed").chmod(0)
    next((tmp_path / "file").glob("process-*")).chmod(0)
    try:
        done = own_process.run(_AS_ANY_USER, tmp_path)
    finally:
        (tmp_path / "closed").chmod(0o755)
    assert done.returncode == 0
    assert "finished" in done.stdout, done.stderr
    for name in ("closed", "file"):
        assert re.search(rf"{name} .* may not be read: permission denied", done.stdout)
    *reading, writing = done.stderr.splitlines()
    assert len(reading) == 4
    assert all("inside may not be read: permission denied. Ask its owner" in r for r in reading)
    assert "inside/trace.json can't be written: Permission denied. Name a file" in writing


_AS_ANY_USER = """
import contextlib, io, sys
from distlab import cli
from tests.own_process import give_up_privileges

root = sys.argv[1]
inside = f"{root}/closed/inside"
with contextlib.redirect_stdout(io.StringIO()):
    cli.main(["runs", root])  # loads all that it needs
give_up_privileges()
assert cli.main(["runs", root]) == 0
for command in ("runs", "advise", "dashboard"):
    assert cli.main([command, inside]) == 2
assert cli.main(["export", inside, "-o", "trace.json"]) == 2
assert cli.main(["export", f"{root}/open", "-o", f"{inside}/trace.json"]) == 2
"""


def test_letters_that_the_output_lacks_are_escaped(tmp_path: Path) -> None:
    distlab.record(tmp_path / "r\u00fcn").close()
    done = subprocess.run(
        [sys.executable, "-m", "distlab", "runs", str(tmp_path)],
        capture_output=True, timeout=120, check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert rb"r\xfcn" in done.stdout


def test_output_that_nobody_reads_ends_the_command_quietly(tmp_path: Path) -> None:
    for number in range(3):
        distlab.record(tmp_path / str(number), probe=False).close()
    command = [sys.executable, "-m", "distlab", "runs", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(60)) == (b"", 141)
