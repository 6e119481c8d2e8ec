"""What the looks at a program's stack find."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from distlab.events import Event, OwnPython
from distlab.profiling import own_lines
from distlab.profiling.own_lines import OwnLines, own_stack

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


def test_functions_that_libraries_make_of_strings_are_no_lines_of_the_program() -> None:
    stack = own_stack(called_by_made_code("collections"))
    assert stack is not None
    assert stack.split(" > ")[-1].startswith("test_own_lines.py:")
    program = own_stack(called_by_made_code("__main__"))
    assert program is not None
    assert program.endswith("<string>:1")


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> tuple[OwnLines, list[Event]]:
    heard: list[Event] = []
    lines = OwnLines(heard.append)
    emit: Callable[[int], list[FrameType]] = lambda thread: frames()  # noqa: ARG005, E731
    monkeypatch.setattr(own_lines, "frames_of", emit)
    lines._thread = threading.get_ident()
    return lines, heard


@pytest.mark.parametrize(("idle_before", "counted_ms"), [(False, 50), (True, 600)])
def test_a_look_stands_for_the_time_since_one_that_also_found_the_program(
    looking: tuple[OwnLines, list[Event]], *, idle_before: bool, counted_ms: int
) -> None:
    """After one in distlab's calls it stands for a twentieth of a second at most."""
    lines, heard = looking
    lines.look(10 * MS, idle=idle_before)
    lines.look(610 * MS, idle=True)
    lines.report(700 * MS, whole=True)
    (one,) = heard
    assert isinstance(one, OwnPython)
    assert sum(one.stacks.values()) == counted_ms * MS
