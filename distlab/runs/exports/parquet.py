"""All events in one Parquet file, for pandas, Polars, DuckDB and Spark."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Final

from distlab.errors import MissingExtraError
from distlab.runs.exports.lines import line_of
from distlab.runs.exports.recorded import Recorded, envelopes

_ROWS_AT_ONCE: Final = 50_000


def write(run: Recorded, path: Path) -> None:
    """Writes a row for each event, in order: `time_ns`, `kind`, and `event` as JSON.

    `event` is the line of a `.jsonl` export; the run file's `meta` is in the
    file's metadata, as `distlab`.
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
            for kind, line in (line_of(envelope),)
        ]:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
