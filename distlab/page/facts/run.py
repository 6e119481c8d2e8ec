"""A run's name, devices, machine and state."""

from __future__ import annotations

import time
from typing import Final

from distlab.folds import HeaderColumns
from distlab.page.facts.amounts import NOTHING, Facts, first_rows
from distlab.text.units import counted, plain

ENDED_WITHOUT_CLOSING: Final = "ended without closing"
_STATUS_TEXTS: Final = {"killed": ENDED_WITHOUT_CLOSING}
_MOST_TROUBLE: Final = 500


def run_facts(
    header: HeaderColumns,
    *,
    live: bool,
    caught_up: bool,
    read_share: float | None,
    name: str,
    halted: str = "",
) -> Facts:
    """Returns the facts of the page's header; `halted` is why a live run takes no steps now."""
    devices = header["places"] or header["devices"]
    each = len(header["places"]) // max(1, len(header["replicas"]))
    replicas = f", {counted(len(header['replicas']), 'replica')} of {each} devices"
    simulated = "simulated " if header["simulated"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    status = _status(header, live=live, caught_up=caught_up)
    title, trouble = _trouble(header, status)
    return {
        "run": plain(header["name"] or name),
        "status": status,
        "status_text": (status == "live" and halted) or _status_text(status, read_share),
        "halted": status == "live" and bool(halted),
        "trouble_title": title,
        "trouble": trouble[:_MOST_TROUBLE],
        "strategy": (header["strategy"] or NOTHING) + replicas * (each > 1),
        "devices": counted(len(devices), f"{simulated}device") if devices else NOTHING,
        "device_names": first_rows((plain(device, 24) for device in devices), len(devices)),
        "host": f"{plain(header['host'])}, process {header['process']}" if header["host"] else "",
        "started": _wall_clock(header["unix_ns"]),
        "versions": plain(versions, 200),
    }


def ending_text(header: HeaderColumns) -> str:
    """Returns why a run ended early, empty for other runs."""
    how = "failed" if header["status"] == "failed" else "was interrupted"
    return f"The run {how}: {plain(header['message'], 200)}" if header["message"] else ""


def errors_text(header: HeaderColumns) -> str:
    """Returns the number of errors and the last one, empty without errors."""
    count = header["error_count"]
    return (
        f"{counted(count, 'error')}; the last: {plain(header['errors'][-1], 200)}" if count else ""
    )


def _status(header: HeaderColumns, *, live: bool, caught_up: bool) -> str:
    if header["status"]:
        return header["status"]
    if not caught_up:
        return "reading"
    return "live" if live else "killed"


def _status_text(status: str, read_share: float | None) -> str:
    if status == "reading" and read_share is not None:
        return f"reading {int(100 * read_share)} %"
    return _STATUS_TEXTS.get(status, status)


def _trouble(header: HeaderColumns, status: str) -> tuple[str, str]:
    if status == "failed":
        return "The run failed", header["message"]
    if status == "killed":
        return (
            "The run ended without closing its recording",
            "The page shows everything that was stored.",
        )
    if header["error_count"]:
        return counted(header["error_count"], "error"), plain(header["errors"][-1], 300)
    return "", ""


def _wall_clock(unix_ns: int) -> str:
    if not unix_ns:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ns / 1e9))
