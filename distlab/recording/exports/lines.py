"""One event a line, as JSON: for other programs, and to read with `jq` or pandas."""

from __future__ import annotations

import math
from typing import IO, TYPE_CHECKING, Any

import msgspec

from distlab.events import Event, Metric, Unknown

if TYPE_CHECKING:
    from distlab.recording.exports import Recorded


def write(run: Recorded, file: IO[str]) -> None:
    """Writes the file's `meta` on the first line, then each event in order.

    An event has its `kind` and its fields, with bytes in base64; kinds that this
    version does not know are kept. JSON has no infinities, so in metrics they
    are words: "nan", "inf", "-inf". An event is given back by
    `msgspec.json.decode(line, type=AnyEvent, strict=False)`.
    """
    encoder = msgspec.json.Encoder()
    file.write(encoder.encode({"kind": "meta", **run.meta}).decode() + "\n")
    for event in run.events():
        file.write(encoder.encode(_whole(event)).decode() + "\n")


def _whole(event: Event | Unknown) -> Any:
    if isinstance(event, Unknown):
        return {"time_ns": event.time_ns, "kind": event.kind, **event.fields}
    if isinstance(event, Metric) and not all(map(math.isfinite, event.values.values())):
        values = {n: v if math.isfinite(v) else str(v) for n, v in event.values.items()}
        return {"kind": "metric", "time_ns": event.time_ns, "step": event.step, "values": values}
    return event
