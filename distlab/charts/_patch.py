"""New data for a chart that is on a page already, in the form that BokehJS takes."""

from __future__ import annotations

from typing import Any

from bokeh.core.serialization import Serializer
from bokeh.models import ColumnDataSource


def data_patch(source: ColumnDataSource) -> dict[str, Any]:
    """Writes all data of a source as Bokeh's own patch, as its server would send it.

    Args:
      source: of a chart.

    Returns:
      An event for BokehJS' `apply_json_patch` or for a `PATCH-DOC` message. Arrays
      are in base64, so that it can be sent as one piece of text.
    """
    return {
        "kind": "ColumnDataChanged",
        "model": source.ref,
        "attr": "data",
        "data": Serializer(deferred=False).serialize(dict(source.data)).content,
        "cols": None,
    }
