"""The protocol buffer `tf.train.Example`, built without TensorFlow.

An example is a map from names to features, and a feature is a list of strings, of
float32 or of int64 numbers. The messages are described here, as in TensorFlow's
example.proto and feature.proto, in a pool of their own: TensorFlow may be imported in
the same process.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field: Final = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "tensorflow"

KINDS: Final = {"bytes_list": "strings", "float_list": "float32", "int64_list": "int64"}
"""The kinds of features, and what they hold."""


def _messages() -> tuple[Any, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="example.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, kind in (
        ("BytesList", _Field.TYPE_BYTES),
        ("FloatList", _Field.TYPE_FLOAT),
        ("Int64List", _Field.TYPE_INT64),
    ):
        values = file.message_type.add(name=name)
        values.field.add(name="value", number=1, label=_Field.LABEL_REPEATED, type=kind)

    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, of) in enumerate(
        (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")), 1
    ):
        _add_message(feature, name, number, of).oneof_index = 0

    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
    _add_message(entry, "value", 2, "Feature")
    _add_message(features, "feature", 1, "Features.FeatureEntry").label = _Field.LABEL_REPEATED

    _add_message(file.message_type.add(name="Example"), "features", 1, "Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    example, feature_class = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Example", "Feature")
    )
    return example, feature_class


def _add_message(owner: Any, name: str, number: int, of: str) -> Any:
    return owner.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.{of}",
    )


Example, Feature = _messages()
"""The classes of the messages `tf.train.Example` and `tf.train.Feature`."""
