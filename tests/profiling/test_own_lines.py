from __future__ import annotations

import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import distlab
from distlab.events import Event, OwnPython
from distlab.profiling import own_lines
from distlab.profiling.own_lines import OwnLines

MS = 1_000_000


def frames() -> list[FrameType]:
    """The caller's frames, the innermost first."""
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def called_by_made_code(name: str) -> list[FrameType]:
    """The frames of a call from code that was made of a string in a module of this name."""
    made: dict[str, Any] = {"__name__": name}
    exec(compile("def call(f): return f()", "<string>", "exec"), made)
    found: list[FrameType] = made["call"](frames)
    return found


def sampled(
    monkeypatch: pytest.MonkeyPatch, stack: list[FrameType], *, idle_before: bool
) -> OwnPython:
    """Two samples of a stack, 600 ms apart."""
    heard: list[Event] = []
    lines = OwnLines(heard.append)
    lines.thread = threading.get_ident()
    monkeypatch.setattr(own_lines, "frames_of", lambda _: stack)
    lines.look(10 * MS, idle=idle_before)
    lines.look(610 * MS, idle=True)
    lines.report(700 * MS, whole=True)
    (one,) = heard
    assert isinstance(one, OwnPython)
    return one


@pytest.mark.parametrize(
    ("module", "last"), [("collections", "test_own_lines.py:34"), ("__main__", "<string>:1")]
)
def test_functions_that_libraries_make_are_no_lines_of_program(
    module: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sampled(monkeypatch, called_by_made_code(module), idle_before=True)
    (stack,) = found.stacks
    assert stack.split(" > ")[-1] == last


@pytest.mark.parametrize(("idle_before", "counted_ms"), [(False, 50), (True, 600)])
def test_a_sample_stands_for_little_time_after_distlabs_calls(
    *, idle_before: bool, counted_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sampled(monkeypatch, frames(), idle_before=idle_before)
    assert sum(found.stacks.values()) == counted_ms * MS


@pytest.mark.parametrize(
    ("file", "seen"), [("integrations/orbax/a.py", True), ("step/a.py", False)]
)
def test_of_distlabs_calls_those_that_save_are_the_programs(
    file: str, *, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[str, Any] = {"__name__": "a"}
    path = str(Path(distlab.__file__).parent / file)
    exec(compile("def call(f): return f()", path, "exec"), made)
    stack = made["call"](frames)
    stack = stack[next(n for n, one in enumerate(stack) if one.f_code.co_filename == path) :]
    lines = OwnLines(lambda _: None)
    lines.thread = threading.get_ident()
    monkeypatch.setattr(own_lines, "frames_of", lambda _: stack)
    lines.look(10 * MS, idle=True)
    lines.look(610 * MS, idle=True)
    assert bool(lines._spent) == seen


def test_a_compilation_notes_the_lines_that_call_run() -> None:
    heard: list[Event] = []
    lines = OwnLines(heard.append)
    lines.note_call()
    lines._spent["train.py:3"] = 5
    lines.report(700 * MS, whole=True)
    (one,) = heard
    assert isinstance(one, OwnPython)
    (call,) = one.calls
    assert "test_own_lines.py:" in call.split(" > ")[-1]
