"""One event a line of JSON, for `jq` and other programs; or a row, for pandas, Polars, Spark."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, Final

import msgspec

from distlab.errors import MissingExtraError
from distlab.events import Envelope, Event, Metric, Unknown, kind_of
from distlab.runs.recorded import Recorded, envelopes

_ROWS_AT_ONCE: Final = 50_000
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
            file.write(_line_of(envelope)[1] + "\n")


def write_parquet(run: Recorded, path: Path) -> None:
    """Writes a row for each event, in order: `time_ns`, `kind`, and `event`, its line.

    The run file's `meta` is in the file's metadata, as `distlab`.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(
            "Parquet files are written with pyarrow, which is not installed. Install it with: "
            "pip install pyarrow; or export to events.jsonl."
        ) from error
    about = {"distlab": json.dumps(run.meta)}
    columns = [("time_ns", pa.int64()), ("kind", pa.string()), ("event", pa.string())]
    schema = pa.schema(columns, metadata=about)
    events = envelopes(run)
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=["kind"]) as writer:
        while rows := [
            {"time_ns": envelope.event.time_ns, "kind": kind, "event": line}
            for envelope in itertools.islice(events, _ROWS_AT_ONCE)
            for kind, line in (_line_of(envelope),)
        ]:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _line_of(envelope: Envelope) -> tuple[str, str]:
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
    """Returns an event with all of its fields, those at their default included."""
    if isinstance(event, Unknown):
        return {"time_ns": event.time_ns, "kind": event.kind, **event.fields}
    if isinstance(event, Metric) and not all(map(math.isfinite, event.values.values())):
        values = {n: v if math.isfinite(v) else str(v) for n, v in event.values.items()}
        return {"kind": "metric", "time_ns": event.time_ns, "step": event.step, "values": values}
    return {"kind": kind_of(event), **msgspec.structs.asdict(event)}
