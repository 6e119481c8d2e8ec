"""What the page says in words: texts made from columns, for the page to put in place."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from distlab.advice import evidence_text
from distlab.charts.batches import size_text
from distlab.charts.theme import colour
from distlab.control.loops import LoopControl
from distlab.events import Advice, RecorderCost
from distlab.folds import Columns, Folds
from distlab.folds.device_part import MOST_ROWS
from distlab.text.bytes import bytes_text
from distlab.text.units import (
    count_text,
    duration_text,
    plain,
    rate_text,
    share_text,
    value_text,
)

Facts: TypeAlias = dict[str, Any]
"""Names of places on the page to their text; the page inserts it as plain text."""

NOTHING = "\u2013"
_STALLED_SECONDS = 5.0
_MOST_ADVICE = 12
_MOST_ROWS = 32
"""Replicas that get a row each; of more, equal neighbours share one."""

_MOST_GROUPS = 200


def collect(
    folds: Folds,
    *,
    whole: Folds,
    live: bool,
    caught_up: bool,
    name: str,
    batch: int | None,
    advice: Sequence[Advice],
) -> Facts:
    """Returns all that the page says.

    Args:
      folds: what is known of the run at the moment that is shown.
      whole: all that is known of it.
      live: whether more events may come.
      caught_up: whether all that was recorded has been read.
      name: what to call a run that did not say its name.
      batch: the batch to tell of, None for the newest.
      advice: what the run could do better.
    """
    header = whole.columns("header")
    said = run_facts(header, live=live, caught_up=caught_up, name=name)
    # A moment gone by is shown as it was then.
    status = said["status"] if folds is whole else "live"
    return {
        **said,
        **loss_facts(header, lost=whole.lost),
        **progress_facts(folds.columns("steps"), status),
        **metric_facts(folds.columns("metrics")),
        **device_facts(folds.columns("devices")),
        **capture_facts(folds.columns("captures")),
        **cost_facts(folds.evidence.last_cost),
        **reduction_facts(folds.columns("reductions")),
        **program_facts(folds.columns("programs")),
        **batch_facts(folds.batch(batch), folds.columns("batches")),
        **advice_facts(advice),
    }


def run_facts(header: Columns, *, live: bool, caught_up: bool, name: str) -> Facts:
    """Returns what ran, where, and whether it still runs.

    Args:
      header: columns of `folds.Header`.
      live: whether more events may come.
      caught_up: whether all that was recorded has been read.
      name: what to call a run that did not say its name.
    """
    devices = header["replicas"] or header["devices"]
    simulated = "simulated " if header["simulated"] else ""
    versions = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    return {
        "run": plain(header["name"] or name),
        "status": _status(header, live=live, caught_up=caught_up),
        "message": header["message"][:500],
        "strategy": header["strategy"] or NOTHING,
        "devices": f"{count_text(len(devices))} {simulated}devices" if devices else NOTHING,
        "device_names": _some((plain(device, 24) for device in devices), len(devices)),
        "host": f"{plain(header['host'])}, process {header['process']}" if header["host"] else "",
        "started": _wall_clock(header["unix_ns"]),
        "versions": plain(versions, 200),
        "errors": [plain(error, 300) for error in header["errors"]],
        "error_count": header["error_count"],
    }


def _status(header: Columns, *, live: bool, caught_up: bool) -> str:
    if header["status"]:
        return str(header["status"])
    if not caught_up:
        return "reading"
    return "live" if live else "killed"


def _some(texts: Iterable[str], count: int) -> list[str]:
    """Returns the first of so many texts, and how many more there are."""
    first = list(itertools.islice(texts, _MOST_ROWS))
    left = count - _MOST_ROWS
    return [*first, f"and {count_text(left)} more"] if left > 0 else first


def _wall_clock(unix_ns: int) -> str:
    if not unix_ns:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_ns / 1e9))


def loss_facts(header: Columns, *, lost: int) -> Facts:
    """Returns what is missing in what the page shows.

    Args:
      header: columns of `folds.Header`.
      lost: events that were gone before they could be read.
    """
    missing = lost + header["not_recorded"]
    reasons = [plain(reason, 200) for reason in header["not_recorded_reasons"]]
    if lost:
        reasons.append(f"{count_text(lost)} events left the memory before they were read")
    return {
        "lost": f"{count_text(missing)} events lost" if missing else "nothing lost",
        "lost_reasons": reasons,
        "lost_some": bool(missing),
    }


def progress_facts(steps: Columns, status: str) -> Facts:
    """Returns how fast and how far the run is.

    Args:
      steps: columns of `folds.Steps`.
      status: what `run_facts` says of the run.
    """
    live = status == "live"
    rate = steps["rate"] if live else steps["mean_rate"]
    examples = steps["examples_rate"] if live else steps["mean_examples_rate"]
    total, count = steps["total"], steps["steps"]
    idle = steps["since_last_s"]
    return {
        "rate": NOTHING if rate is None else rate_text(rate),
        "examples_rate": NOTHING if examples is None else rate_text(examples),
        "rate_note": _rate_note(live=live, idle=idle),
        "examples": f"{count_text(steps['examples'])} examples so far"
        if live
        else f"{count_text(steps['examples'])} examples in all",
        "steps": count_text(count)
        if total is None
        else f"{count_text(min(count, total))} of {count_text(total)}",
        "progress": steps["progress"],
        "eta": _remaining(steps, live=live),
    }


def _rate_note(*, live: bool, idle: float | None) -> str:
    if not live:
        return "mean of the whole run"
    if idle is not None and idle > _STALLED_SECONDS:
        return f"last step {duration_text(idle)} ago"
    return "over the last 2 s"


def _remaining(steps: Columns, *, live: bool) -> str:
    elapsed = duration_text(steps["elapsed_s"])
    further = steps["steps"] - (steps["total"] or steps["steps"])
    if further > 0:
        elapsed += f", with {count_text(further)} further step{'s' * (further > 1)}"
    if not live:
        return f"took {elapsed}"
    if steps["eta_s"] is None or further > 0:
        return f"{elapsed} so far"
    return f"about {duration_text(steps['eta_s'])} left"


def metric_facts(metrics: Columns) -> Facts:
    """Returns the newest value of the loss, or else of the first metric.

    Args:
      metrics: columns of `folds.Metrics`.
    """
    names: list[str] = metrics["name"]
    if not names:
        return {"loss": NOTHING, "loss_name": "loss", "loss_note": "nothing logged yet"}
    place = next((place for place, name in enumerate(names) if "loss" in name.lower()), 0)
    first = float(metrics["value"][place][0])
    note = f"from {value_text(first)} at the first log"
    wrong = metrics["not_finite"][place]
    return {
        "loss": value_text(metrics["last"][place]),
        "loss_name": plain(names[place], 24),
        "loss_note": f"{count_text(wrong)} values are not finite" if wrong else note,
        "other_metrics": any("loss" not in name.lower() for name in names),
    }


def batch_facts(detail: Columns, batches: Columns) -> Facts:
    """Returns the chosen batch in words.

    Args:
      detail: what `folds.Batches.detail` gives for it.
      batches: columns of `folds.Batches`.
    """
    numbers = batches["number"]
    facts: Facts = {
        "batch_first": int(numbers[0]) if len(numbers) else 0,
        "batch_last": int(numbers[-1]) if len(numbers) else 0,
        "batch_count": count_text(batches["count"]),
        "batch_forgotten": batches["forgotten"],
        "batch_uneven": numbers[batches["uneven"]][-200:].tolist(),
    }
    if not detail:
        return facts | {"batch_number": None, "batch_sizes": [], "has_pieces": False}
    share = max(1, detail["nominal"])
    groups = _groups(detail["replica"], detail["size"])
    return facts | {
        "batch_number": detail["number"],
        "batch_place": f"epoch {detail['epoch']}, batch {detail['batch']}",
        "batch_total": f"{count_text(sum(detail['size']))} examples",
        "batch_bytes": bytes_text(detail["bytes"]),
        "batch_wait": duration_text(detail["wait_ms"] / 1e3),
        "batch_transfer": duration_text(detail["transfer_ms"] / 1e3),
        "batch_policy": {
            "rebatch": "one global batch, divided over the replicas",
            "per_replica": "one batch taken for each replica",
        }.get(detail["policy"], plain(detail["policy"])),
        "batch_sizes": [
            {
                "replica": group.name,
                "size": group.size,
                "text": group.times + (size_text(group.size, share) if group.size else "empty"),
                "color": colour(group.first),
                "first": group.first,
            }
            for group in groups
        ],
        "has_pieces": True,
        "batch_parted": len(detail["replica"]) > _MOST_ROWS,
        "batch_pieces": _pieces(groups),
        "batch_full": sum(size == detail["nominal"] for size in detail["size"]),
        "batch_empty": sum(size == 0 for size in detail["size"]),
    }


class _Group(NamedTuple):
    """Neighbouring replicas that got the same number of examples each.

    Attributes:
      name: of the replica, or of the first and the last.
      first: number of the first.
      replicas: how many they are.
      size: examples of each.
    """

    name: str
    first: int
    replicas: int
    size: int

    @property
    def times(self) -> str:
        """How often the size is meant, empty for once."""
        return "" if self.replicas == 1 else f"{count_text(self.replicas)} \u00d7 "


def _groups(names: Sequence[str], sizes: Sequence[int]) -> list[_Group]:
    """Groups equal neighbours where there are too many replicas for a row each."""
    runs = [(size, 1) for size in sizes]
    if len(names) > _MOST_ROWS:
        runs = [(size, len(list(run))) for size, run in itertools.groupby(sizes)]
    groups: list[_Group] = []
    first = 0
    for size, count in runs[:_MOST_GROUPS]:
        name = plain(names[first], 24)
        if count > 1:
            name = f"{name} to {plain(names[first + count - 1], 24)}"
        groups.append(_Group(name, first, count, size))
        first += count
    return groups


def _pieces(groups: Sequence[_Group]) -> list[list[str]]:
    """Returns for each group its devices, their rows of the global batch, and how many."""
    pieces, first = [], 0
    for group in groups:
        rows = group.size * group.replicas
        text = f"{count_text(first)} to {count_text(first + rows - 1)}" if rows else "none"
        pieces.append([group.name, text, group.times + count_text(group.size)])
        first += rows
    return pieces


def device_facts(devices: Columns) -> Facts:
    """Returns what is known of the devices' memory.

    Args:
      devices: columns of `folds.Devices`.
    """
    memory = devices["memory"]
    process = devices["process_bytes"]
    return {
        "device_memory": "not available on this platform"
        if memory is None
        else ", ".join(
            _some(
                (
                    f"{plain(name, 18)} {bytes_text(size)}"
                    for name, size in zip(devices["device"], memory, strict=True)
                ),
                len(memory),
            )
        ),
        "process_memory": bytes_text(int(process[-1])) if len(process) else NOTHING,
        "gpu_use": "" if devices["used"] is None else _gpu_use(devices),
        "simulated": devices["simulated"],
        "device_parts": _parts(devices["device"]),
        "has_parts": len(devices["device"]) > MOST_ROWS,
    }


def _parts(names: Sequence[str]) -> list[list[str]]:
    """Returns what can be shown by itself of very many devices: first numbers and names."""
    if len(names) <= MOST_ROWS:
        return []
    begins = range(0, len(names), MOST_ROWS)
    ends = [min(begin + MOST_ROWS, len(names)) - 1 for begin in begins]
    return [
        [str(begin), f"{plain(names[begin], 24)} to {plain(names[end], 24)}"]
        for begin, end in zip(begins, ends, strict=True)
    ]


def _gpu_use(devices: Columns) -> str:
    """Says what NVML told of the GPUs."""
    return ", ".join(
        f"{plain(name, 18)} {bytes_text(used)}, {share_text(share)}"
        for name, used, share in zip(
            devices["device"], devices["used"], devices["utilization"], strict=True
        )
    )


def capture_facts(captures: Columns) -> Facts:
    """Returns what is known of the newest capture.

    Args:
      captures: columns of `folds.Captures`.
    """
    if not captures["count"]:
        return {"capture_note": "", "has_capture": False}
    by = "you" if captures["asked_by"] == "user" else "the recorder, which does so now and then"
    length = captures["end_s"] - captures["start_s"]
    left = captures["spans_left_out"]
    note = (
        f"Taken at {captures['start_s']:.1f} s of the run by {by}: {duration_text(length)}, "
        f"{count_text(captures['steps'])} steps handed over, "
        f"{bytes_text(captures['profile_bytes'])} of profile."
    )
    if left:
        note += f" {count_text(left)} short spans were not kept."
    return {"capture_note": note, "has_capture": True}


def cost_facts(cost: RecorderCost | None) -> Facts:
    """Returns what recording costs, by its own account of the last second.

    Args:
      cost: the newest account, None before the first.
    """
    if cost is None:
        return {"cost": NOTHING}
    seconds = max(cost.time_ns - cost.start_ns, 1)
    beside = (cost.writer_ns + cost.watcher_ns + cost.capture_ns) / seconds
    return {
        "cost": f"{cost.emit_ns / seconds:.1%} of the loop's time, {beside:.1%} of a core beside "
        f"it ({rate_text(1e9 * cost.events / seconds)} events a second)"
    }


def advice_facts(advice: Sequence[Advice]) -> Facts:
    """Returns what the run could do better, the dearest first.

    Args:
      advice: what `distlab.advice` found.
    """
    return {
        "advice": [
            {
                "cause": one.cause.replace("_", " "),
                "subject": plain(one.subject),
                "text": plain(one.text, 400),
                "remedy": plain(one.remedy, 400),
                "evidence": plain(evidence_text(one), 400),
                "steps": f"steps {count_text(one.steps[0])} to {count_text(one.steps[1])}"
                if one.steps
                else "",
                "page": one.page,
            }
            for one in advice[:_MOST_ADVICE]
        ],
        "no_advice": not advice,
    }


def capture_button_facts(state: str) -> Facts:
    """Returns what the capture button says.

    Args:
      state: what `Feed.capture_state` says; empty when there is nothing to capture.
    """
    return {
        "can_capture": bool(state),
        "capture_busy": state == "running",
        "capture_state": "" if state in {"ready", "running"} else plain(state, 300),
    }


def loop_facts(loops: Sequence[LoopControl] | None, told: Columns, *, live: bool) -> Facts:
    """Returns the loops that can be controlled, and which are paused.

    Args:
      loops: those of this process, None where another one has them.
      told: columns of `folds.Loops`.
      live: whether the run goes on.
    """
    there = loops or ()
    elsewhere = [
        f"{plain(name)} is {state}"
        for name, state in zip(told["name"], told["state"], strict=True)
        if live and loops is None and state in {"running", "paused"}
    ]
    return {
        "loops": [
            {
                "number": loop.number,
                "name": plain(loop.name),
                "state": loop.state,
                "position": count_text(loop.position),
            }
            for loop in there
        ],
        "has_loops": bool(there),
        "loops_elsewhere": "; ".join(elsewhere),
    }


def program_facts(programs: Columns) -> Facts:
    """Returns what all compilations took together.

    Args:
      programs: columns of `folds.Programs`.
    """
    count = len(programs["function"]) + programs["rows_left_out"]
    left_out = programs["rows_left_out"]
    older = f"; the oldest {count_text(left_out)} are not listed" if left_out else ""
    return {
        "has_programs": count > 0,
        "no_programs": not count,
        "compiling": f"{count_text(count)} program{'s' * (count != 1)}, compiled in "
        f"{duration_text(programs['compiling_s'])} together{older}",
    }


def reduction_facts(reductions: Columns) -> Facts:
    """Returns what the table of reductions leaves out.

    Args:
      reductions: columns of `folds.Reductions`.
    """
    left_out = reductions["rows_left_out"]
    return {
        "reductions_left_out": f"{count_text(left_out)} reductions of still more kinds, called "
        "from Python, are in no number here."
        if left_out
        else ""
    }
