"""What the recording left out, and what it costs."""

from __future__ import annotations

from typing import TypedDict

from distlab.events import RecorderCost
from distlab.folds import HeaderColumns
from distlab.page.facts.amounts import NOTHING, counted
from distlab.text.units import plain, rate_text


class RecordingFacts(TypedDict):
    """The rows "recording" and "it costs" of the card "This run".

    Attributes:
      lost: How many events are missing.
      lost_reasons: Why, one text a reason.
      cost: The share of the loop's time that recording needs, by its own account.
    """

    lost: str
    lost_reasons: list[str]
    cost: str


def recording_facts(
    header: HeaderColumns, lost: int, last_cost: RecorderCost | None
) -> RecordingFacts:
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
        f"{callers:.1%} of the loop's time, {beside:.1%} of a core beside "
        f"it ({rate_text(1e9 * cost.events / length_ns)} events a second)"
    )
