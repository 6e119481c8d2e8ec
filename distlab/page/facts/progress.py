"""The speed of a run and its progress."""

from __future__ import annotations

from distlab.folds import CoordinationColumns, Pace, StepColumns, pace_of
from distlab.page.facts.amounts import NOTHING, Facts
from distlab.text.units import counted, duration_text, of_total, rate_text


def progress_facts(
    steps: StepColumns,
    coordination: CoordinationColumns,
    *,
    live: bool,
    now_s: float | None = None,
    counted_steps: bool = True,
) -> Facts:
    """Returns how fast and how far a run is."""
    pace = pace_of(steps, now_s)
    rate = pace.rate if live else steps["mean_rate"]
    examples = pace.examples_rate if live else steps["mean_examples_rate"]
    total, count = steps["total"], steps["steps"]
    so_far = "so far" if live else "in all"
    if not count and coordination["strategy"] is not None:
        done = f"{counted(sum(coordination['worker_done']), 'function')} done by workers"
        return _without_steps("no steps in this process", f"{done} {so_far}: see Parameter servers")
    if not count and not counted_steps:
        return _without_steps("steps are not counted", "programs are observed: see Compile")
    return {
        "rate": NOTHING if rate is None else rate_text(rate),
        "rate_note": _rate_note(pace, live=live),
        "examples_rate": NOTHING if examples is None else rate_text(examples),
        "examples": f"{counted(steps['examples'], 'example')} {so_far}",
        "counts_examples": steps["examples"] > 0,
        "steps": of_total(count, total),
        "progress": steps["progress"],
        "eta": _remaining(steps, pace, live=live),
    }


def _without_steps(why: str, instead: str) -> Facts:
    return {
        "rate": NOTHING,
        "rate_note": why,
        "examples_rate": NOTHING,
        "examples": "",
        "counts_examples": False,
        "steps": NOTHING,
        "progress": None,
        "eta": instead,
    }


def steps_text(steps: StepColumns) -> str:
    """Returns how many steps were taken, with how many examples."""
    examples = f" with {counted(steps['examples'], 'example')}" if steps["examples"] else ""
    return f"{counted(steps['steps'], 'step')}{examples}"


def rate_texts(steps: StepColumns, pace: Pace, *, live: bool) -> list[tuple[str, str]]:
    """Returns the known rates per second with their names."""
    rates = {
        "steps, lately": pace.rate if live else None,
        "steps, on average": steps["mean_rate"],
        "examples, lately": pace.examples_rate if live else None,
        "examples, on average": None if live else steps["mean_examples_rate"],
    }
    return [(name, rate_text(rate)) for name, rate in rates.items() if rate is not None]


def left_text(pace: Pace) -> str:
    """Returns how long a live run goes on, empty where that is not known."""
    return "" if pace.eta_s is None else f"about {duration_text(pace.eta_s)} left"


def halt_text(pace: Pace) -> str:
    """Returns why a live run takes no steps now, empty when it does."""
    if pace.halted == "stalled" and pace.idle_s is not None:
        long = duration_text(pace.idle_s) if pace.idle_s >= 60 else f"{pace.idle_s:.0f} s"
        return f"no step for {long}"
    return pace.halted


def _rate_note(pace: Pace, *, live: bool) -> str:
    if not live:
        return "mean, first step to last"
    return halt_text(pace) or "over the last 2 s"


def _remaining(steps: StepColumns, pace: Pace, *, live: bool) -> str:
    elapsed = duration_text(pace.elapsed_s if live else steps["elapsed_s"])
    further = steps["steps"] - (steps["total"] or steps["steps"])
    if further > 0:
        elapsed += f", with {counted(further, 'further step')}"
    if not live:
        return f"took {elapsed}"
    return f"{elapsed} so far" if further > 0 else left_text(pace) or f"{elapsed} so far"
