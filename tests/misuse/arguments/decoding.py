"""Arguments of examples, their features, and images."""

from __future__ import annotations

from typing import Any

from distlab import io
from tests.misuse.table import row
from tests.misuse.world import World

_FEATURES = {"x": io.FixedLenFeature([], "int64")}
_EXAMPLE = io.serialize_example({"x": 1})


@row("serialize_example.features", "dict")
def _(w: World, v: Any) -> object:
    return io.serialize_example(v)


@row(
    "serialize_example.a_feature",
    "text bytes negative fraction nan true list texts scalar_array variable variable_of_other",
)
def _(w: World, v: Any) -> object:
    return io.serialize_example({"x": v})


@row("parse_single_example.serialized")
def _(w: World, v: Any) -> object:
    return io.parse_single_example(v, _FEATURES)


@row("parse_single_example.features")
def _(w: World, v: Any) -> object:
    return io.parse_single_example(_EXAMPLE, v)


@row("parse_example.serialized", "empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return io.parse_example(v, _FEATURES)


@row("FixedLenFeature.shape", "empty_list empty_tuple list")
def _(w: World, v: Any) -> object:
    return io.FixedLenFeature(v, "int64")


@row("FixedLenFeature.dtype", "type variable variable_of_other")
def _(w: World, v: Any) -> object:
    return io.FixedLenFeature([], v)


@row("VarLenFeature.dtype", "type variable variable_of_other")
def _(w: World, v: Any) -> object:
    return io.VarLenFeature(v)


@row("decode_raw.input_bytes", "empty_list empty_tuple", tells="text bytes texts")
def _(w: World, v: Any) -> object:
    return io.decode_raw(v, "float32")


@row("decode_raw.out_type", "type scalar_array variable variable_of_other deleted leaked")
def _(w: World, v: Any) -> object:
    return io.decode_raw(b"12345678", v)


@row("decode_csv.records", "text bytes texts empty_list empty_tuple")
def _(w: World, v: Any) -> object:
    return io.decode_csv(v, [""])


@row("decode_csv.record_defaults", "list", tells="empty_list empty_tuple things texts")
def _(w: World, v: Any) -> object:
    return io.decode_csv("1,2", v)


@row("decode_image.contents")
def _(w: World, v: Any) -> object:
    return io.decode_image(v)


@row("decode_jpeg.contents")
def _(w: World, v: Any) -> object:
    return io.decode_jpeg(v)


@row("decode_png.contents")
def _(w: World, v: Any) -> object:
    return io.decode_png(v)
