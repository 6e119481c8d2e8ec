"""Arguments of files of records and of lines."""

from __future__ import annotations

from typing import Any

import distlab as dl
from distlab import io
from tests.misuse.table import row
from tests.misuse.world import World


@row("TFRecordWriter.path", "text bytes texts")
def _(w: World, v: Any) -> object:
    io.TFRecordWriter(v).close()
    return None


@row("TFRecordWriter.options", "none")
def _(w: World, v: Any) -> object:
    io.TFRecordWriter("records", v).close()
    return None


@row("TFRecordWriter.write.record", "text bytes")
def _(w: World, v: Any) -> object:
    with io.TFRecordWriter("records") as writer:
        writer.write(v)
    return None


@row(
    "TFRecordDataset.filenames",
    "text bytes empty_list empty_tuple texts dataset",
    tells="scalar_array variable variable_of_other",
)
def _(w: World, v: Any) -> object:
    return dl.data.TFRecordDataset(v)


@row("TFRecordDataset.compression_type", "none")
def _(w: World, v: Any) -> object:
    return dl.data.TFRecordDataset("records", v)


@row(
    "TextLineDataset.filenames",
    "text bytes empty_list empty_tuple texts dataset",
    tells="scalar_array variable variable_of_other",
)
def _(w: World, v: Any) -> object:
    return dl.data.TextLineDataset(v)


@row("TextLineDataset.num_parallel_reads", "none negative")
def _(w: World, v: Any) -> object:
    return dl.data.TextLineDataset("lines", num_parallel_reads=v)


@row("read_file.filename", "text bytes texts")
def _(w: World, v: Any) -> object:
    for name in ("abc", "x", "a"):
        (w.folder / name).touch()
    return io.read_file(v)
