"""The newest capture, and the button that takes one."""

from __future__ import annotations

from typing import Final, TypedDict

from distlab.folds import CaptureColumns, WorkerColumns
from distlab.page.facts.amounts import counted
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, duration_text, plain

_NAMED: Final = 3
"""Workers that are named as missing."""


class CaptureFacts(TypedDict):
    """The note below the chart of a capture.

    Attributes:
      has_capture: Whether there is a capture.
      capture_note: When it was taken, by whom, and how large it is.
    """

    has_capture: bool
    capture_note: str


class CaptureButtonFacts(TypedDict):
    """The button that takes a capture.

    Attributes:
      can_capture: Whether the page has the button.
      capture_busy: Whether a capture is being taken.
      capture_state: Why the last one failed, else empty.
    """

    can_capture: bool
    capture_busy: bool
    capture_state: str


def capture_facts(captures: CaptureColumns, workers: WorkerColumns) -> CaptureFacts:
    """Returns the note on the newest capture."""
    if not captures["count"]:
        return {"has_capture": False, "capture_note": ""}
    by = "you" if captures["asked_by"] == "user" else "the recorder, which does so now and then"
    length = captures["end_s"] - captures["start_s"]
    left = captures["spans_left_out"]
    note = (
        f"Taken at {captures['start_s']:.1f} s of the run by {by}: {duration_text(length)}, "
        f"{counted(captures['steps'], 'step')} dispatched, "
        f"{bytes_text(captures['profile_bytes'])} of profile."
    )
    if left:
        note += f" {count_text(left)} short spans were not kept."
    captured = set(captures["device"])
    absent = [
        name
        for name, devices in zip(workers["name"], workers["devices"], strict=True)
        if devices and captured.isdisjoint(devices)
    ]
    if 0 < len(absent) < len(workers["name"]):
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        note += (
            f" It lacks {', '.join(absent[:_NAMED])}{more}: one picture shows the workers that "
            "capture at the same step."
        )
    return {"has_capture": True, "capture_note": note}


def capture_button_facts(state: str) -> CaptureButtonFacts:
    """Returns the state of the button."""
    return {
        "can_capture": bool(state),
        "capture_busy": state == "running",
        "capture_state": "" if state in {"ready", "running"} else plain(state, 300),
    }
