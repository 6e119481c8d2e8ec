"""The tables of a coordinator's workers, and of what they read and change on servers, as text."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from distlab.folds import CoordinationColumns
from distlab.page.facts.amounts import NOTHING
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, plain, share_text

Rows: TypeAlias = dict[str, list[str]]

CLOSURES: Final = (
    *("worker", "queued", "running", "done", "failed", "retried"),
    *("busy", "behind", "most", "state"),
)
LINKS: Final = (
    *("worker", "server", "reads", "read_messages", "read", "read_rate"),
    *("changes", "change_messages", "sent", "sent_rate"),
)
_MOST_ROWS: Final = 200
_MOST_REASON: Final = 60


def closure_rows(columns: CoordinationColumns) -> Rows:
    """Returns a row for each worker of a coordinator."""
    places = range(min(len(columns["worker"]), _MOST_ROWS))
    return {
        "worker": columns["worker"][:_MOST_ROWS],
        "queued": [_known(columns["worker_queued"][n]) for n in places],
        "running": [str(int(bool(columns["worker_running"][n]))) for n in places],
        "done": [count_text(columns["worker_done"][n]) for n in places],
        "failed": [count_text(columns["worker_failed"][n]) for n in places],
        "retried": [count_text(columns["worker_retried"][n]) for n in places],
        "busy": [share_text(columns["worker_busy"][n]) for n in places],
        "behind": [_mean(columns["worker_behind"][n]) for n in places],
        "most": [
            count_text(columns["worker_most_behind"][n]) if columns["worker_used"][n] else NOTHING
            for n in places
        ],
        "state": [_state(columns, n) for n in places],
    }


def link_rows(columns: CoordinationColumns) -> Rows:
    """Returns a row for each worker and parameter server that exchanged anything."""
    return {
        "worker": [f"worker {n}" for n in columns["link_worker"][:_MOST_ROWS]],
        "server": [f"server {n}" for n in columns["link_server"][:_MOST_ROWS]],
        "reads": [count_text(n) for n in columns["link_reads"][:_MOST_ROWS]],
        "read_messages": [_known(n) for n in columns["link_read_messages"][:_MOST_ROWS]],
        "read": [bytes_text(n) for n in columns["link_read_bytes"][:_MOST_ROWS]],
        "read_rate": [_rate(n) for n in columns["link_read_per_s"][:_MOST_ROWS]],
        "changes": [count_text(n) for n in columns["link_changes"][:_MOST_ROWS]],
        "change_messages": [_known(n) for n in columns["link_change_messages"][:_MOST_ROWS]],
        "sent": [bytes_text(n) for n in columns["link_change_bytes"][:_MOST_ROWS]],
        "sent_rate": [_rate(n) for n in columns["link_change_per_s"][:_MOST_ROWS]],
    }


def _known(count: int | None) -> str:
    return NOTHING if count is None else count_text(count)


def _mean(behind: float) -> str:
    return NOTHING if math.isnan(behind) else f"{behind:.3g}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_text(round(bytes_per_s))}/s"


def _state(columns: CoordinationColumns, worker: int) -> str:
    if columns["worker_away"][worker]:
        name = columns["worker"][worker]
        why = dict(zip(columns["task_name"], columns["task_reason"], strict=True)).get(name)
        return f"lost: {plain(why, _MOST_REASON)}" if why else "lost"
    running = columns["worker_running"][worker]
    return f"runs {plain(running, 40)}" if running else "idle"
