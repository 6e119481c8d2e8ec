"""Runs whose events hold what no recording does, each in one field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from distlab.events import Event, Unknown, kind_of
from distlab.runs.run_file import RunFile
from tests.recording import samples
from tests.synthetic import whole_run


class Damage(NamedTuple):
    """What is damaged in a run."""

    kind: str
    field: str
    change: Callable[[Any], Any]
    page: str


DAMAGES = {
    "spans": Damage("capture", "spans", lambda held: [one[:-1] for one in held], "overview"),
    "devices": Damage("capture", "devices", lambda held: held * 3, "devices"),
    "indices": Damage("preview", "indices", lambda _: b"\0", "overview"),
    "bytes": Damage("placement", "bytes_per_device", lambda held: held[:3], "placement"),
    "huge": Damage("sharding", "sizes", lambda held: [2**61] * len(held), "batches"),
    "negative": Damage("sharding", "sizes", lambda held: [-(2**61)] * len(held), "batches"),
    "memory": Damage("device_sample", "memory_bytes", lambda _: [], "devices"),
}


def damaged_run(folder: Path, damage: Damage) -> Path:
    """Writes a run with this damage, and returns its folder."""
    whole = list(whole_run(12))
    known = {kind_of(event) for event in whole}
    more = [event for event in samples.one_of_each() if kind_of(event) not in known]
    file = RunFile(folder, "a run")
    file.write([_damaged(event, damage) for event in (*whole[:-1], *more, whole[-1])])
    file.close()
    return folder


def _damaged(event: Event | Unknown, damage: Damage) -> Event | Unknown:
    if isinstance(event, Unknown) or kind_of(event) != damage.kind:
        return event
    held = getattr(event, damage.field)
    return msgspec.structs.replace(event, **{damage.field: damage.change(held)})
