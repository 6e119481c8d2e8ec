"""The buttons of controlled loops: pause, one step, resume and stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypedDict

from distlab.control.loops import LoopControl, State, loops

_VERBS: Final[dict[object, Callable[[LoopControl], None]]] = {
    "pause": LoopControl.pause,
    "step": LoopControl.step,
    "resume": LoopControl.resume,
    "stop": LoopControl.stop,
}


class LoopRow(TypedDict):
    """A loop of this process, as pages show it."""

    number: int
    name: str
    state: State
    position: int


def loop_rows() -> list[LoopRow]:
    """Returns the running loops of this process."""
    return [
        {"number": loop.number, "name": loop.name, "state": loop.state, "position": loop.position}
        for loop in loops()
    ]


def press(number: object, verb: object) -> None:
    """Applies a button to a loop of this process; does nothing when the loop has ended."""
    act = _VERBS.get(verb) if isinstance(verb, str) else None
    loop = next((loop for loop in loops() if loop.number == number), None)
    if act is not None and loop is not None:
        act(loop)
