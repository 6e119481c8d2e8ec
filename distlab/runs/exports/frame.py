"""The events of one kind as a pandas table."""

from __future__ import annotations

import typing
from typing import Any

import msgspec

from distlab.errors import ArgumentValueError, MissingExtraError
from distlab.events import AnyEvent, Unknown
from distlab.runs.exports.recorded import Recorded


def to_pandas(run: Recorded, kind: str) -> Any:
    """Returns the events of a kind, a row each. See `distlab.Run.to_pandas`."""
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError(
            "to_pandas makes its table with pandas, which is not installed. Install it with: "
            'pip install "distlab[export]"; or go through run.events(kind).'
        ) from error
    structs = {s.__struct_config__.tag: s for s in typing.get_args(AnyEvent)}
    rows = [
        {"time_ns": e.time_ns, **e.fields} if isinstance(e, Unknown) else msgspec.structs.asdict(e)
        for e in run.events(kind)
    ]
    if not rows and kind not in structs:
        raise ArgumentValueError(
            f"kind must be one of {', '.join(map(str, structs))}, or another one that the run "
            f"has, got {kind!r:.80}."
        )
    columns = list(structs[kind].__struct_fields__) if kind in structs else None
    return pd.DataFrame(rows, columns=columns)
