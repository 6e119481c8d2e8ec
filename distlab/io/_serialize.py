"""serialize_example: a dict of values as a `tf.train.Example`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from distlab.errors import InvalidArgumentError
from distlab.io._example_proto import Example
from distlab.text.shown import shown, shown_text


def serialize_example(features: Mapping[str, Any]) -> bytes:
    r"""Returns a serialized `tf.train.Example`, for `TFRecordWriter.write`.

    Args:
      features: A value for each key: a number, text, `bytes`, or a list or array of one
        of them, of which the values are written in order, without their shape. Floats
        are stored as float32, integers and bools as int64.

    Returns:
      The message, which TensorFlow reads, too. Equal features give equal bytes.

    Raises:
      InvalidArgumentError: A key is no text, or a value has another form, or is an
        empty list without a dtype.

    Example:
      >>> import distlab as dl
      >>> import numpy as np
      >>> dl.io.serialize_example({"label": 3})
      b'\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x03'
      >>> image = np.zeros((28, 28), np.uint8)
      >>> len(dl.io.serialize_example({"image": image.tobytes(), "shape": image.shape}))
      823
    """
    given: Any = features
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidArgumentError(
            f"features must be a dict whose keys are text, got {shown(features)}. Write for "
            "example {'label': 3}."
        )
    example = Example()
    for key, value in features.items():
        _fill(example.features.feature[key], key, value)
    serialized: bytes = example.SerializeToString(deterministic=True)
    return serialized


def _fill(feature: Any, key: str, value: Any) -> None:
    try:
        values = _flat(value)
    except Exception as error:
        raise _unfit(key, value, error) from error
    if values and all(isinstance(item, str | bytes) for item in values):
        feature.bytes_list.value.extend(
            item.encode() if isinstance(item, str) else item for item in values
        )
        return
    try:
        kind = np.asarray(values).dtype.kind if values else _empty_kind(value)
        if kind == "S":
            feature.bytes_list.SetInParent()
        elif kind in {"i", "u", "b"}:
            feature.int64_list.SetInParent()
            feature.int64_list.value.extend(map(int, values))
        elif kind == "f":
            feature.float_list.SetInParent()
            feature.float_list.value.extend(values)
        else:
            raise ValueError("neither numbers nor text")
    except ValueError as error:
        raise _unfit(key, value, error) from error


def _unfit(key: str, value: Any, error: Exception) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"Feature {shown(key)} must be numbers of float32 or int64, text or bytes, or a list or "
        f"array of one of them, got {shown(value)}: {shown_text(error):.200}. Convert it; a list "
        "without values needs a dtype, as in np.zeros(0, np.int64)."
    )


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        # With dtype object, since arrays of bytes drop zero bytes at the end.
        value = np.asarray(value, dtype=object)
    elif not isinstance(value, str | bytes):
        value = np.asarray(value)
    return list(value.ravel().tolist()) if isinstance(value, np.ndarray) else [value]


def _empty_kind(value: Any) -> str:
    kind = value.dtype.kind if isinstance(value, np.ndarray) else ""
    return "S" if kind in {"S", "U"} else kind
