"""New data for a chart on an open page, in the form that BokehJS reads."""

from __future__ import annotations

from typing import Literal, TypedDict

from bokeh.core.serialization import Ref, Serializer
from bokeh.models import ColumnDataSource


class DataPatch(TypedDict):
    """Bokeh's event `ColumnDataChanged`.

    Attributes:
      kind: `"ColumnDataChanged"`.
      model: Reference to the source.
      attr: `"data"`.
      data: All columns of the source, serialized.
      cols: None, since all columns change.
    """

    kind: Literal["ColumnDataChanged"]
    model: Ref
    attr: str
    data: dict[str, object]
    cols: list[str] | None


def data_patch(source: ColumnDataSource) -> DataPatch:
    """Serializes all data of a source, as Bokeh's server would send it.

    Args:
      source: A source of a chart.

    Returns:
      An event for BokehJS' `apply_json_patch` or for a `PATCH-DOC` message, with
      arrays in base64: it can be sent as one text.

    Example:
      >>> from distlab.charts import ProcessMemory, data_patch
      >>> patch = data_patch(ProcessMemory().source)
      >>> patch["kind"], patch["attr"]
      ('ColumnDataChanged', 'data')
    """
    return {
        "kind": "ColumnDataChanged",
        "model": source.ref,
        "attr": "data",
        "data": Serializer(deferred=False).serialize(dict(source.data)).content,
        "cols": None,
    }
