"""The coordinator of a run: how many functions it gave to workers, and who was lost."""

from __future__ import annotations

from typing import Final

from distlab.folds import CoordinationColumns
from distlab.page.facts.amounts import Facts, first_rows
from distlab.text.units import count_text, counted, plain

_MOST_FUNCTIONS: Final = 5
_MOST_MARKS: Final = 100
_MOST_REASON: Final = 200
_UNDIVIDED: Final = (
    "A coordinator's workers take whole batches, each from its own dataset: no batch is divided."
)


_NO_BATCHES: Final = "This run divided no batches."


def server_facts(
    now: CoordinationColumns, whole: CoordinationColumns, batches: int, *, ended: bool
) -> Facts:
    """Returns what a coordinator's workers did."""
    has_coordinator = whole["strategy"] is not None
    divides = bool(batches) or not (has_coordinator or ended)
    notes = _notes(now)
    return {
        "has_coordinator": has_coordinator,
        "divides_batches": divides,
        "undivided": "" if divides else _UNDIVIDED if has_coordinator else _NO_BATCHES,
        "closures": _closures(now),
        "closure_notes": first_rows(notes, len(notes)),
        "closure_functions": _functions(now),
        "closure_spans": _spans(now),
        "time_marks": [
            (round(at_s, 3), text)
            for at_s, text in zip(whole["task_s"], _changes(whole), strict=True)
        ][-_MOST_MARKS:],
    }


def _changes(columns: CoordinationColumns) -> list[str]:
    """Returns a sentence for each process that was lost or has returned."""
    found = []
    for place, at_s in enumerate(columns["task_s"]):
        state, reason = columns["task_state"][place], columns["task_reason"][place]
        verb = "was lost" if state == "lost" else plain(state)
        why = f": {plain(reason, _MOST_REASON)}" if reason else ""
        found.append(f"{columns['task_name'][place]} {verb} at {at_s:.2f} s{why}")
    return found


def _closures(now: CoordinationColumns) -> str:
    done, running = sum(now["worker_done"]), sum(map(bool, now["worker_running"]))
    errors = sum(now["worker_failed"])
    failed = f"{count_text(errors)} failed, " if errors else ""
    ahead = sum(count or 0 for count in now["worker_queued"])
    queued = f"{count_text(ahead)} queued at workers, " if now["processes"] else ""
    kind = "processes" if now["processes"] else "threads of this process"
    return (
        f"{counted(now['scheduled'], 'function')} scheduled: {count_text(done)} done, {failed}"
        f"{count_text(running)} running, {queued}{count_text(now['waiting'])} in the "
        "coordinator's queue. "
        f"{counted(len(now['worker']), 'worker')} ({kind}), "
        f"{counted(now['servers'], 'parameter server')}."
    )


def _notes(now: CoordinationColumns) -> list[str]:
    found = _changes(now)
    if now["cancelled"]:
        found.append(
            f"{counted(now['cancelled'], 'function')} cancelled before they began, because another "
            "raised an error"
        )
    if now["unserved"]:
        found.append(
            f"{counted(now['unserved'], 'function')} failed, because a parameter server was lost"
        )
    return found


def _functions(now: CoordinationColumns) -> str:
    pairs = list(zip(now["function"], now["function_count"], strict=True))
    if not pairs:
        return ""
    named = [f"{plain(name, 60) or 'others'} {count_text(count)} \u00d7" for name, count in pairs]
    left = len(named) - _MOST_FUNCTIONS
    more = f" and {count_text(left)} more" if left > 0 else ""
    return f"Functions that ended: {', '.join(named[:_MOST_FUNCTIONS])}{more}."


def _spans(now: CoordinationColumns) -> str:
    ended = sum(map(sum, (now["worker_done"], now["worker_failed"], now["worker_retried"])))
    shown = len(now["span_worker"])
    shade = "The stronger a row's colour, the larger its share of time with a function."
    which = "all" if shown >= ended else f"{count_text(shown)} of {count_text(ended)}"
    return f"{shade} Bars inside a row are single functions: {which} that ended."
