"""The division of one batch over the replicas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from distlab.charts.batches import size_text
from distlab.charts.theme import colour
from distlab.folds import BatchColumns, BatchDetail, part_of_batches
from distlab.folds.arrays import Ints
from distlab.meshes import blocks
from distlab.page.facts.amounts import MOST_ROWS, NOTHING, Facts
from distlab.text.bytes import bytes_text
from distlab.text.units import count_text, counted, duration_text, plain

_MOST_GROUPS: Final = 200
_MOST_UNEVEN: Final = 200
_MOST_NAME: Final = 60
_POLICIES: Final = {
    "rebatch": "one global batch, divided over the replicas",
    "per_replica": "one batch for each replica",
}


_NO_BATCH: Final[Facts] = {
    **dict.fromkeys(("batch_before", "batch_after", "batch_number")),
    **dict.fromkeys(("batch_place", "batch_total", "batch_bytes", "batch_policy"), NOTHING),
    **dict.fromkeys(("batch_wait", "batch_transfer"), NOTHING),
    "batch_dataset": "",
    "batch_sizes": [],
    "batch_parted": False,
    "batch_of_numbers": False,
    "batch_pieces": [],
    "has_pieces": False,
}


def batch_facts(
    detail: BatchDetail | None,
    batches: BatchColumns,
    dataset: int | None = None,
    *,
    wanted: int | None = None,
) -> Facts:
    """Returns the chosen batch as texts."""
    missing = missing_text(wanted, detail, batches["count"], of_dataset=dataset is not None)
    newest = batches["number"][batches["dataset"] == batches["main"]]
    names = [plain(name, _MOST_NAME) for name in batches["datasets"]]
    counts = batches["dataset_counts"]
    batches = part_of_batches(batches, dataset)
    numbers = batches["number"]
    known: Facts = {
        "batch_missing": missing,
        "batch_first": int(numbers[0]) if len(numbers) else 0,
        "batch_last": int(numbers[-1]) if len(numbers) else 0,
        "batch_datasets": [
            [str(place), f"{name}: {counted(count, 'batch', 'batches')}"]
            for place, (name, count) in enumerate(zip(names, counts, strict=True))
        ],
        "has_datasets": len(names) > 1,
        "newest_batch": f"Batch {newest[-1]} of the data ({names[batches['main']]})"
        if len(newest)
        else "",
        "batch_uneven": numbers[batches["uneven"]][-_MOST_UNEVEN:].tolist(),
        "batch_forgotten": batches["forgotten"],
    }
    return known | (_NO_BATCH if detail is None else _detail_facts(detail, numbers, names))


def _detail_facts(detail: BatchDetail, numbers: Ints, names: Sequence[str]) -> Facts:
    """Returns the texts of the shown batch."""
    groups = _groups(detail)
    place = int(np.searchsorted(numbers, detail["number"]))
    return {
        "batch_before": int(numbers[place - 1]) if place else None,
        "batch_after": int(numbers[place + 1]) if place + 1 < len(numbers) else None,
        "batch_dataset": names[detail["dataset"]],
        "batch_number": detail["number"],
        "batch_place": f"epoch {detail['epoch']}, batch {detail['batch']}",
        "batch_total": counted(sum(detail["size"]), "example"),
        "batch_bytes": bytes_text(detail["bytes"]),
        "batch_policy": _policy(detail),
        "batch_wait": duration_text(detail["wait_ms"] / 1e3),
        "batch_transfer": duration_text(detail["transfer_ms"] / 1e3),
        "batch_sizes": [
            {
                "replica": group.name,
                "size": group.size,
                "text": group.times + share_of(group.size, detail["nominal"]),
                "color": colour(group.first),
                "partial": detail["uneven"] and group.size < detail["nominal"],
                "first": group.first,
            }
            for group in groups
        ],
        "batch_parted": len(detail["replica"]) > MOST_ROWS,
        "batch_of_numbers": detail["form"] == "numbers",
        "batch_pieces": _pieces(groups),
        "has_pieces": not detail["mesh"],
    }


def _policy(detail: BatchDetail) -> str:
    if not detail["mesh"]:
        return _POLICIES.get(detail["policy"], plain(detail["policy"]))
    spec = blocks.full_spec(detail["spec"], len(detail["shape"]))
    return plain(f"{blocks.spec_text(spec)} on {blocks.axes_text(detail['mesh'])}", 120)


def missing_text(
    wanted: int | None, detail: BatchDetail | None, count: int, *, of_dataset: bool = False
) -> str:
    """Returns why another batch is shown than the wanted one, empty when it is that one."""
    if wanted is None or detail is None or detail["number"] == wanted:
        return ""
    if wanted >= count:
        why = f"is not there: {counted(count, 'batch', 'batches')} so far, from 0"
    elif of_dataset:
        why = "is of another dataset, or no longer kept"
    else:
        why = "is no longer kept"
    return f"Batch {count_text(wanted)} {why}. Batch {count_text(detail['number'])} is shown."


def share_of(size: int, nominal: int) -> str:
    """Returns a replica's examples as text: `"8"`, `"5 of 8"` or `"empty"`."""
    return size_text(size, max(1, nominal)) if size else "empty"


class _Group(NamedTuple):
    """Neighbouring replicas with the same number of examples each."""

    name: str
    first: int
    replicas: int
    size: int

    @property
    def times(self) -> str:
        """The number of replicas as a factor, empty for one."""
        return "" if self.replicas == 1 else f"{count_text(self.replicas)} \u00d7 "


def _groups(detail: BatchDetail) -> list[_Group]:
    """Groups equal neighbours where there are too many replicas for a row each."""
    names, sizes = detail["replica"], detail["size"]
    runs = [(size, 1) for size in sizes]
    if len(names) > MOST_ROWS:
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
    pieces, first = [], 0
    for group in groups:
        rows = group.size * group.replicas
        text = count_text(first) if rows else "none"
        text += f" to {count_text(first + rows - 1)}" if rows > 1 else ""
        pieces.append([group.name, text, group.times + count_text(group.size)])
        first += rows
    return pieces
