"""The speed of a run and its progress."""

from __future__ import annotations

from typing import Final

from distlab.folds import CoordinationColumns, StepColumns
from distlab.page.facts.amounts import NOTHING, Facts, counted
from distlab.text.units import count_text, duration_text, rate_text

_STALLED_SECONDS: Final = 5.0


def progress_facts(steps: StepColumns, coordination: CoordinationColumns, *, live: bool) -> Facts:
    """Returns how fast and how far a run is."""
    rate = steps["rate"] if live else steps["mean_rate"]
    examples = steps["examples_rate"] if live else steps["mean_examples_rate"]
    total, count = steps["total"], steps["steps"]
    so_far = "so far" if live else "in all"
    if not count and coordination["strategy"] is not None:
        done = f"{counted(sum(coordination['worker_done']), 'function')} done by workers"
        return {
            "rate": NOTHING,
            "rate_note": "no steps in this process",
            "examples_rate": NOTHING,
            "examples": "",
            "steps": NOTHING,
            "progress": None,
            "eta": f"{done} {so_far}: see Parameter servers",
        }
    return {
        "rate": NOTHING if rate is None else rate_text(rate),
        "rate_note": _rate_note(steps["since_last_s"], live=live),
        "examples_rate": NOTHING if examples is None else rate_text(examples),
        "examples": f"{counted(steps['examples'], 'example')} {so_far}",
        "steps": count_text(count)
        if total is None
        else f"{count_text(min(count, total))} of {count_text(total)}",
        "progress": steps["progress"],
        "eta": _remaining(steps, live=live),
    }


def steps_text(steps: StepColumns) -> str:
    """Returns how many steps were taken, with how many examples."""
    examples = f" with {counted(steps['examples'], 'example')}" if steps["examples"] else ""
    return f"{counted(steps['steps'], 'step')}{examples}"


def rate_texts(steps: StepColumns) -> list[tuple[str, str]]:
    """Returns the known rates per second with their names."""
    rates = (
        ("steps, lately", steps["rate"]),
        ("steps, on average", steps["mean_rate"]),
        ("examples, lately", steps["examples_rate"]),
    )
    return [(name, rate_text(rate)) for name, rate in rates if rate is not None]


def _rate_note(idle_s: float | None, *, live: bool) -> str:
    if not live:
        return "mean, first step to last"
    if idle_s is not None and idle_s > _STALLED_SECONDS:
        return f"last step {duration_text(idle_s)} ago"
    return "over the last 2 s"


def _remaining(steps: StepColumns, *, live: bool) -> str:
    elapsed = duration_text(steps["elapsed_s"])
    further = steps["steps"] - (steps["total"] or steps["steps"])
    if further > 0:
        elapsed += f", with {counted(further, 'further step')}"
    if not live:
        return f"took {elapsed}"
    if steps["eta_s"] is None or further > 0:
        return f"{elapsed} so far"
    return f"about {duration_text(steps['eta_s'])} left"
