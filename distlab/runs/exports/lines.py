"""One event a line, as JSON, for other programs, `jq` or pandas."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

import msgspec

from distlab.events import Envelope, Event, Metric, Unknown, kind_of
from distlab.runs.exports.recorded import Recorded, envelopes

_encoder = msgspec.json.Encoder()
_BREAKS: Final = str.maketrans({one: f"\\u{ord(one):04x}" for one in "\x85\u2028\u2029"})
"""The characters that JSON leaves as they are, and at which `str.splitlines` ends a line."""


def write(run: Recorded, path: Path) -> None:
    """Writes the file's `meta` on the first line, then each event in order.

    An event has its `kind` and its fields, with bytes in base64; kinds that this
    version does not know are kept. Events of another process than 0 also have its
    `process_index`. JSON has no infinities, so in metrics they
    are words: "nan", "inf", "-inf". `msgspec.json.decode(line, type=AnyEvent,
    strict=False)` returns the event.
    """
    with path.open("w", encoding="utf-8") as file:
        file.write(_line({"kind": "meta", **run.meta}) + "\n")
        for envelope in envelopes(run):
            file.write(line_of(envelope)[1] + "\n")


def line_of(envelope: Envelope) -> tuple[str, str]:
    """Returns an event's kind, and the event as JSON."""
    process, event = envelope
    line = _line(_as_json(event))
    if process and not hasattr(event, "process_index"):  # the event `run` has it as a field
        line = f'{line[:-1]},"process_index":{process}}}'
    return kind_of(event), line


def _line(value: Any) -> str:
    text = _encoder.encode(value).decode()
    return text if text.isascii() else text.translate(_BREAKS)


def _as_json(event: Event | Unknown) -> Any:
    if isinstance(event, Unknown):
        return {"time_ns": event.time_ns, "kind": event.kind, **event.fields}
    if isinstance(event, Metric) and not all(map(math.isfinite, event.values.values())):
        values = {n: v if math.isfinite(v) else str(v) for n, v in event.values.items()}
        return {"kind": "metric", "time_ns": event.time_ns, "step": event.step, "values": values}
    return event
