"""The buttons of a view: pause, one step, resume and stop, for the loops of this process."""

from __future__ import annotations

from typing import Any

from distlab.control.loops import LoopControl, loops

_VERBS = ("pause", "step", "resume", "stop")


def shown_loops() -> list[dict[str, Any]]:
    """Returns what a page has to know of the loops that run now: only numbers and texts."""
    return [
        {"number": loop.number, "name": loop.name, "state": loop.state, "position": loop.position}
        for loop in loops()
    ]


def press(number: Any, verb: Any) -> None:
    """Does what a button says; nothing when the loop has ended meanwhile.

    Args:
      number: which loop of this process, as the page was told.
      verb: `"pause"`, `"step"`, `"resume"` or `"stop"`; whatever else comes from a
        page does nothing.
    """
    meant = next((loop for loop in loops() if loop.number == number), None)
    if meant is not None and verb in _VERBS:
        _do(meant, verb)


def _do(loop: LoopControl, verb: str) -> None:
    match verb:
        case "pause":
            loop.pause()
        case "step":
            loop.step()
        case "resume":
            loop.resume()
        case _:
            loop.stop()
