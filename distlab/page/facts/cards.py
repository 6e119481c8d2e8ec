"""Cards and notes of a page: recording, programs, reductions, captures, loops, advice, runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from distlab.advice import evidence_text
from distlab.events import Advice, RecorderCost
from distlab.folds import (
    CaptureColumns,
    HeaderColumns,
    LoopColumns,
    PlacementColumns,
    ProgramColumns,
    ReductionColumns,
    WorkerColumns,
)
from distlab.meshes.blocks import axes_text
from distlab.page.facts.amounts import NOTHING, Facts
from distlab.page.loop_buttons import LoopRow
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, counted, duration_text, plain, rate_text


def recording_facts(header: HeaderColumns, lost: int, last_cost: RecorderCost | None) -> Facts:
    """Returns what the recording left out, and what it costs."""
    reasons = [plain(reason, 200) for reason in header["not_recorded_reasons"]]
    if lost:
        reasons.append(f"{counted(lost, 'event')} left the memory before they were read")
    return {
        "lost": lost_text(lost + header["not_recorded"]) or "nothing lost",
        "lost_reasons": reasons,
        "cost": _cost_text(last_cost),
    }


def lost_text(count: int) -> str:
    """Returns how many events are missing, empty for none."""
    return f"{counted(count, 'event')} lost; no number here includes them" if count else ""


def _cost_text(cost: RecorderCost | None) -> str:
    if cost is None:
        return NOTHING
    length_ns = max(cost.time_ns - cost.start_ns, 1)
    beside = (cost.writer_ns + cost.watcher_ns + cost.capture_ns) / length_ns
    callers = (cost.emit_ns + cost.log_ns) / length_ns
    return (
        f"{100 * callers:.1f} % of loop time, {100 * beside:.1f} % of one core in the background "
        f"({rate_text(1e9 * cost.events / length_ns)} events per second)"
    )


def program_facts(programs: ProgramColumns) -> Facts:
    """Returns the number of programs, and the time spent on compiling them."""
    left_out = programs["rows_left_out"]
    count = len(programs["function"]) + left_out
    older = f"; the oldest {count_text(left_out)} are not listed" if left_out else ""
    if programs["observed"]:
        older += (
            ". Only programs are observed: instead of steps, their share of the devices' time in "
            "profiles"
        )
    return {
        "has_programs": count > 0,
        "no_programs": count == 0,
        "compiling": f"{counted(count, 'program')}, compiled in "
        f"{duration_text(programs['compiling_s'])} together{older}",
        "can_simulate": False,
        "cannot_simulate": True,
        "simulated_steps": [],
        "simulating": False,
        "simulation_state": "",
        "simulated_headings": [],
        "simulated_rows": [],
        "simulated_notes": [],
    }


class ReductionRow(NamedTuple):
    """One kind of reduction as text."""

    kind: str
    where: str
    times: str
    size: str


def placement_facts(placement: PlacementColumns) -> Facts:
    """Returns whose arrays are drawn, and the bytes that divided variables save."""
    mesh = plain(axes_text(placement["mesh"]), 80)
    function = plain(placement["function"])
    of = f"what {function} receives" if function else "variables"
    held, whole = (placement[name] for name in ("device_bytes", "whole_bytes"))
    most = int(held.argmax()) if len(held) else 0
    saved = int(whole[most] - held[most]) if len(held) else 0
    return {
        "mesh_placement": f"{of}, on {mesh}" if mesh else "",
        "divides_variables": saved > 0,
        "variable_bytes": f"{bytes_text(int(held[most]))} a device in parts; "
        f"{bytes_text(int(whole[most]))} as whole copies"
        if saved
        else "",
    }


def reduction_facts(reductions: ReductionColumns) -> Facts:
    """Returns what the table of reductions leaves out, and whether they are along mesh axes."""
    left_out = reductions["rows_left_out"]
    return {
        "reductions_left_out": f"{count_text(left_out)} reductions called from Python, of further "
        "kinds, are not counted here."
        if left_out
        else "",
        "has_pairs": bool(reductions["pairs"]),
        "pairs_of": f"in each step of {plain(reductions['pairs_of'])}",
        "has_axes": any(reductions["along"]),
        "of_replicas": not any(reductions["along"]),
    }


def reduction_rows(reductions: ReductionColumns) -> list[ReductionRow]:
    """Returns a short row for each kind of reduction; lines of one program are one kind."""
    counts: dict[tuple[str, str, bool, int], int] = {}
    kinds = zip(
        reductions["kind"],
        [
            f"{where} along {along}" if along else where
            for where, along in zip(reductions["where"], reductions["along"], strict=True)
        ],
        reductions["at_least"],
        reductions["bytes"],
        strict=True,
    )
    for kind, count in zip(kinds, reductions["count"], strict=True):
        counts[kind] = counts.get(kind, 0) + count
    return [
        ReductionRow(
            plain(kind),
            plain(where),
            f"{'at least ' if at_least else ''}{count_text(count)}",
            bytes_text(size),
        )
        for (kind, where, at_least, size), count in counts.items()
    ]


_MOST_WORKERS: Final = 3
"""Workers that are named as missing."""


def _steps_text(steps: int) -> str:
    return f"{counted(steps, 'step')} dispatched" if steps else "whatever ran"


def capture_facts(captures: CaptureColumns, workers: WorkerColumns) -> Facts:
    """Returns the note on a capture, and those to choose from."""
    if captures["number"] is None:
        return {"has_capture": False, "capture_note": "", "captures": [], "capture": None}
    by = "you" if captures["asked_by"] == "user" else "the recorder"
    length = captures["end_s"] - captures["start_s"]
    left = captures["spans_left_out"]
    note = (
        f"Taken at {captures['start_s']:.1f} s of the run by {by}: {duration_text(length)}, "
        f"{_steps_text(captures['steps'])}, "
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
        more = f" and {len(absent) - _MOST_WORKERS} more" if len(absent) > _MOST_WORKERS else ""
        note += (
            f" It lacks {', '.join(absent[:_MOST_WORKERS])}{more}: one picture shows the workers "
            "that capture at the same step."
        )
    listed = zip(captures["numbers"], captures["starts_s"], captures["steps_of"], strict=True)
    return {
        "has_capture": True,
        "capture_note": note,
        "captures": [
            [number, f"at {start:.1f} s" + (f", {counted(steps, 'step')}" if steps else "")]
            for number, start, steps in listed
        ],
        "capture": captures["number"],
    }


def capture_button_facts(state: str) -> Facts:
    """Returns the state of the button."""
    return {
        "can_capture": bool(state),
        "capture_busy": state == "running",
        "capture_state": "" if state in {"ready", "running"} else plain(state, 300),
    }


def loop_facts(
    rows: Sequence[LoopRow] | None, recorded: LoopColumns, *, live: bool, may_control: bool = True
) -> Facts:
    """Returns the loops that have buttons, and those that would have them elsewhere."""
    rows = rows if may_control else None
    where = "Its buttons are on the page that the training process serves."
    where = where if may_control else "This page can look but not control."
    elsewhere = [
        f"{plain(name)} is {state}"
        for name, state in zip(recorded["name"], recorded["state"], strict=True)
        if live and rows is None and state in {"running", "paused"}
    ]
    return {
        "loops": [{**row, "name": plain(row["name"])} for row in rows or ()],
        "has_loops": bool(rows),
        "loops_elsewhere": f"{'; '.join(elsewhere)}. {where}" if elsewhere else "",
    }


_MOST_ADVICE: Final = 12


def advice_facts(advice: Sequence[Advice], *, any_step: bool, live: bool) -> Facts:
    """Returns the advice as texts."""
    without = "none" if any_step else "needs steps"
    return {
        "without_advice": f"{without} so far" if live and any_step else without,
        "advice": [_advice_row(one) for one in advice[:_MOST_ADVICE]],
        "has_advice": bool(advice),
        "no_advice": not advice,
    }


def _advice_row(one: Advice) -> Facts:
    steps = one.steps
    return {
        "cause": one.cause.replace("_", " "),
        "subject": plain(one.subject),
        "text": plain(one.text, 400),
        "remedy": plain(one.remedy, 400),
        "evidence": plain(evidence_text(one), 400),
        "steps": f"steps {count_text(steps[0])} to {count_text(steps[1])}" if steps else "",
        "page": one.page,
    }


INDEX: Final[Facts] = {
    "index": True,
    "library": True,
    "run": "runs",
    "status": "index",
    "status_text": "",
    "runs_left_out": "",
}
"""The facts of a page without a run."""


def runs_facts(listed: int, left_out: int) -> Facts:
    """Returns what the table of runs leaves out."""
    if not left_out:
        return {"runs_left_out": ""}
    verb = "is" if left_out == 1 else "are"
    return {
        "runs_left_out": f"{counted(left_out, 'older run')} {verb} not listed: the table has the "
        f"{count_text(listed)} that are live or were written last. ?run=NAME in the address opens "
        "any."
    }
