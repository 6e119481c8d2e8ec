"""The processes of a run: how many, where, and what one of them lacks."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from distlab.folds import WorkerColumns
from distlab.page.facts.amounts import Facts, first_rows
from distlab.text.units import count_text, counted, plain

_BEHIND: Final = 64
"""Steps that a process which still records may be behind another: what was stored comes late."""


def worker_facts(workers: WorkerColumns, living: AbstractSet[int] | None) -> Facts:
    """Returns who takes part in a run, and who is missing."""
    count = len(workers["name"])
    hosts = len({host for host in workers["host"] if host})
    notes = [note for place in range(count) if (note := _note(workers, place, living))]
    return {
        "has_workers": count > 1,
        "workers": f"{counted(count, 'process').replace('processs', 'processes')} on "
        f"{counted(hosts, 'machine')}",
        "worker_notes": first_rows(notes, len(notes)) if count > 1 else [],
    }


def status_text(workers: WorkerColumns, place: int, living: AbstractSet[int] | None) -> str:
    """Returns what a process does, or how it ended."""
    if not workers["recorded"][place]:
        return "has recorded nothing yet"
    if workers["status"][place]:
        return workers["status"][place]
    if living is None or workers["process"][place] in living:
        return "recording"
    return "ended without closing"


def _note(workers: WorkerColumns, place: int, living: AbstractSet[int] | None) -> str:
    """Returns what is wrong with a process, empty for nothing."""
    name, status = workers["name"][place], status_text(workers, place, living)
    last, newest = workers["last_step"][place], max(workers["last_step"])
    at = f"at step {count_text(last)}" if last >= 0 else "before its first step"
    if status == "has recorded nothing yet":
        return f"{name} {status}"
    if status == "failed":
        return f"{name} failed {at}: {plain(workers['message'][place], 200)}"
    if status in {"interrupted", "ended without closing"}:
        how = (
            "was interrupted" if status == "interrupted" else "ended without closing its recording"
        )
        return f"{name} {how} {at}"
    if newest - last > (_BEHIND if status == "recording" else 0):
        how = "is" if status == "recording" else "ended"
        return f"{name} {how} {at}, and another one is at step {count_text(newest)}"
    return ""
