"""The events of one kind as a pandas table."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from distlab.errors import MissingExtraError
from distlab.events import AnyEvent, Envelope, Event, Unknown, kind_of
from distlab.runs.recorded import Recorded, envelopes


def to_pandas(run: Recorded, kind: str) -> Any:
    """Returns the events of a kind, a row each. See `distlab.Run.to_pandas`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(
            "to_pandas makes its table with pandas, which is not installed. Install it with: "
            "pip install pandas; or iterate over run.events(kind)."
        ) from error
    structs = {s.__struct_config__.tag: s for s in typing.get_args(AnyEvent)}
    several = len(run.processes) > 1
    found: Iterator[Envelope] = (
        (envelope for envelope in envelopes(run) if kind_of(envelope.event) == kind)
        if several
        else (Envelope(0, event) for event in run.events(kind))
    )
    rows = [
        {**({"process_index": process} if several else {}), **_fields(event)}
        for process, event in found
    ]
    if not rows:
        next(run.events(kind), None)  # raises where there is no such kind
    columns = list(structs[kind].__struct_fields__) if kind in structs else None
    if several and columns is not None and "process_index" not in columns:
        columns.append("process_index")
    return pd.DataFrame(rows, columns=columns)


def _fields(event: Event | Unknown) -> dict[str, Any]:
    if isinstance(event, Unknown):
        return {"time_ns": event.time_ns, **event.fields}
    return msgspec.structs.asdict(event)
