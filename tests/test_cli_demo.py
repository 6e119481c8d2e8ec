"""`distlab demo` as a user runs it: a process of its own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import distlab as dl
from distlab import events
from distlab.cli import main

LIMIT_SECONDS = 180

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `distlab ARGUMENTS...` in an empty folder; ends it when the test does."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "distlab", *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], beginning: str) -> list[str]:
    """Returns the lines printed up to the one that begins so; pytest's limit bounds it."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(beginning):
            return lines
    pytest.fail(f"ended without {beginning!r}: {lines} {process.communicate()}")


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=LIMIT_SECONDS)
    return process.returncode, out, err


def test_demo_learns_records_and_ends(start: Start, tmp_path: Path) -> None:
    arguments = ["--no-dashboard", "--exit-when-done", "--epochs", "6", "--record", "first"]
    code, out, err = finish(start("demo", *arguments))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == ("Training on 8 simulated CPU devices: 1,437 images, 64 a batch, 138 steps.")
    assert re.fullmatch(r"step 138/138  [\d.]+ steps/s  loss \d\.\d{4}", lines[-3])
    accuracy = re.fullmatch(r"Held-out accuracy: (\d\.\d{4}) \((\d+) of 360 images\)", lines[-2])
    assert accuracy is not None
    assert float(accuracy[1]) == pytest.approx(int(accuracy[2]) / 360, abs=5e-5)
    assert float(accuracy[1]) >= 0.9
    assert lines[-1].startswith("Recorded in first ")
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out), "control characters in a log"

    recorded = dl.Run.open(tmp_path / "first").since(0).events
    runs = [e for e in recorded if isinstance(e, events.Run)]
    assert runs[-1].total_steps == 138
    batches = [e for e in recorded if isinstance(e, events.Sharding)]
    assert sum(sum(b.sizes) for b in batches) == 6 * 1437 + 360
    assert batches[22].sizes == [4, 4, 4, 4, 4, 4, 4, 1]
    losses = [e.values["loss"] for e in recorded if isinstance(e, events.Metric)]
    assert len(losses) == 138
    assert losses[-1] < losses[0] / 2
    around = zip(losses[21::23], losses[22::23], strict=True)  # the full batch before a partial one
    assert all(0.5 < partial / full < 2 for full, partial in around)
    assert isinstance(recorded[-1], events.RunEnd)
    assert recorded[-1].status == "finished"


@pytest.mark.slow
def test_demo_trains_without_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(events.sink, "in_force", events.sink.NULL)
    options = ["--steps", "2", "--record", str(tmp_path / "off")]
    assert main(["demo", "--port", "0", *options]) == 2
    assert "A dashboard shows a recording's folder, and the recording 'off' stores nothing" in (
        capsys.readouterr().err
    )
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it where the descriptor is closed
    assert main(["demo", "--no-dashboard", *options]) == 0
    monkeypatch.undo()
    assert not (tmp_path / "off").exists()


def test_demo_serves_until_ctrl_c(start: Start) -> None:
    process = start("demo", "--steps", "3", "--replicas", "2", "--port", "0")
    lines = read_until(process, "Serving ")
    address = re.fullmatch(r"Dashboard: (http://127\.0\.0\.1:\d+/?)", lines[0])
    assert address is not None, "the address comes first"
    with urllib.request.urlopen(address[1], timeout=60) as page:
        assert page.status == 200
    process.send_signal(signal.SIGINT)
    code, out, err = finish(process)
    assert (code, out, err) == (0, "Stopped.\n", "")


def test_demo_stops_on_ctrl_c_while_training(start: Start, tmp_path: Path) -> None:
    process = start("demo", "--no-dashboard", "--epochs", "9999", "--record", "cut")
    read_until(process, "step ")
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert (code, err) == (130, "distlab: interrupted\n")
    last = dl.Run.open(tmp_path / "cut").since(0, limit=1_000_000).events[-1]
    assert isinstance(last, events.RunEnd)
    assert last.status == "interrupted"


def test_a_taken_port_and_a_file_in_the_way_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for options in (
            ["--port", port, "--exit-when-done"],
            ["--no-dashboard", "--record", "file/run"],
        ):
            assert main(["demo", *options]) == 2
            said = capsys.readouterr()
            assert said.out == ""
            (line,) = said.err.splitlines()
            assert line.startswith("distlab: error: ")
            assert (port if "--port" in options else "file/run") in line
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_one_extra_brings_all_that_the_demo_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("sklearn", "bokeh", "panel", "distlab_dashboard.server"):
        monkeypatch.setitem(sys.modules, package, None)
    assert main(["demo"]) == 2
    assert "pip install 'distlab[demo]'" in capsys.readouterr().err
