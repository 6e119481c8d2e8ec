"""parse_example: serialized `tf.train.Example` messages as arrays."""

# ruff: noqa: ARG001 - TensorFlow's parameters

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from distlab.errors import InvalidArgumentError
from distlab.io._example_proto import KINDS, Example, Feature
from distlab.io._features import (
    DTYPES,
    LISTS,
    FixedLenFeature,
    FixedLenSequenceFeature,
    KeyFeature,
    RaggedFeature,
    VarLenFeature,
)
from distlab.io._ragged import Ragged
from distlab.text.shown import shown

_FEATURES: Final = (FixedLenFeature, FixedLenSequenceFeature, VarLenFeature, RaggedFeature)

_LONG: Final = 64
"""The number of values in a row from which NumPy copies it as fast as a message."""


def parse_example(
    serialized: Any,
    features: Mapping[str, KeyFeature],
    example_names: Any = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Parses a batch of `tf.train.Example` messages (`tf.io.parse_example`).

    One call for a batch costs less than one for each example: batch the records first.

    Args:
      serialized: The messages, as records of a TFRecord file hold them: a list or
        1-d array of `bytes`. One `bytes` gives what `parse_single_example` gives.
      features: What the examples hold: a `FixedLenFeature`, `FixedLenSequenceFeature`,
        `VarLenFeature` or `RaggedFeature` for each key.
      example_names: Names of the examples for error messages.
      name: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      A dict with the keys of `features`: arrays with the examples as first dimension,
      or a `Ragged` for a `VarLenFeature` and a `RaggedFeature`. Strings are `bytes` in
      arrays of objects.

    Raises:
      InvalidArgumentError: An argument has another form, a message is damaged, or an
        example lacks a feature without default value, or has values of another dtype or
        number.

    Example:
      >>> import distlab as dl
      >>> with dl.io.TFRecordWriter("points.tfrecord") as writer:
      ...     for label, point in enumerate(([0.0, 1.0], [2.0, 3.0])):
      ...         writer.write(dl.io.serialize_example({"point": point, "label": label}))
      >>> features = {
      ...     "point": dl.io.FixedLenFeature([2], "float32"),
      ...     "label": dl.io.FixedLenFeature([], "int64"),
      ... }
      >>> batches = dl.data.TFRecordDataset("points.tfrecord").batch(2)
      >>> for batch in batches.map(lambda records: dl.io.parse_example(records, features)):
      ...     print(batch["point"].tolist(), batch["label"].tolist())
      [[0.0, 1.0], [2.0, 3.0]] [0, 1]
    """
    if isinstance(serialized, np.ndarray) and serialized.ndim < 2:
        serialized = serialized.tolist()
    if isinstance(serialized, bytes):
        return parse_single_example(serialized, features, example_names)
    if not isinstance(serialized, list | tuple):
        raise InvalidArgumentError(
            "serialized must be bytes, or a list or 1-d array of bytes, got "
            f"{type(serialized).__name__}. Pass the elements of a TFRecordDataset."
        )
    return _columns(serialized, features, example_names)


def parse_single_example(
    serialized: Any,
    features: Mapping[str, KeyFeature],
    example_names: Any = None,
    name: str | None = None,
) -> dict[str, Any]:
    """Parses one `tf.train.Example` message (`tf.io.parse_single_example`).

    Args:
      serialized: The message, as a record of a TFRecord file holds it: `bytes`.
      features: What the example holds; see `parse_example`.
      example_names: The example's name for error messages.
      name: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      A dict with the keys of `features`: NumPy values, or a `Ragged` for a
      `VarLenFeature`. Strings are `bytes`.

    Raises:
      InvalidArgumentError: As for `parse_example`.

    Example:
      >>> import distlab as dl
      >>> record = dl.io.serialize_example({"name": "rose", "petals": [0.5, 1.5], "label": 1})
      >>> features = {
      ...     "name": dl.io.FixedLenFeature([], bytes),
      ...     "petals": dl.io.FixedLenFeature([2], "float32"),
      ...     "label": dl.io.FixedLenFeature([], "int64"),
      ... }
      >>> flower = dl.io.parse_single_example(record, features)
      >>> flower["name"], flower["petals"].tolist(), int(flower["label"])
      (b'rose', [0.5, 1.5], 1)
    """
    if isinstance(serialized, np.ndarray) and not serialized.ndim:
        serialized = serialized.item()
    if not isinstance(serialized, bytes):
        raise InvalidArgumentError(
            f"serialized must be the bytes of one example, got {type(serialized).__name__}. For a "
            "batch of them use parse_example."
        )
    names = None if example_names is None else [example_names]
    columns = _columns([serialized], features, names)
    return {key: _first(columns[key], feature) for key, feature in features.items()}


def _first(column: Any, feature: KeyFeature) -> Any:
    if isinstance(column, Ragged):
        row = Ragged(column.dense[0], column.lengths[0])
        return row.dense if isinstance(feature, RaggedFeature) else row
    return column[0]


class _Key(NamedTuple):
    """A key of the examples, with the field of a message that holds its values."""

    name: str
    kind: str
    examples: Sequence[Any]
    names: Any

    def rows(self, missing: Sequence[Any] | None) -> list[Any]:
        """Returns the values of each example."""
        name, kind = self.name, self.kind
        found = []
        for number, example in enumerate(self.examples):
            feature = example.get(name)
            values = () if feature is None else getattr(feature, kind).value
            if not values and (feature is None or feature.WhichOneof("kind") != kind):
                self._require_unset(number, feature)
                if missing is None:
                    raise self.error(
                        number, "is missing", "Write it, or give the feature a default_value"
                    )
                values = missing
            found.append(values)
        return found

    def padded(self, rows: Sequence[Any], padding: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows padded to the longest, and their lengths."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values, longest = self.joined(rows), lengths.max(initial=0)
        dense = np.full((len(rows), longest), padding, values.dtype)
        dense[np.arange(longest) < lengths[:, None]] = values
        return dense, lengths

    def joined(self, rows: Sequence[Any]) -> np.ndarray:
        """Returns all values in order."""
        size = sum(map(len, rows))
        values = np.empty(size, DTYPES[self.kind])
        if self.kind == "bytes_list" or size < _LONG:
            values[:] = list(itertools.chain.from_iterable(rows))
        elif size >= _LONG * len(rows):
            start = 0
            for row in rows:
                values[start : start + len(row)] = row
                start += len(row)
        else:
            # Where each call counts, a message puts the rows together faster than NumPy.
            together = getattr(Feature(), self.kind).value
            for row in rows:
                together.extend(row)
            values[:] = together
        return values

    def _require_unset(self, number: int, feature: Any) -> None:
        other = None if feature is None else feature.WhichOneof("kind")
        if other is not None:
            raise self.error(
                number,
                f"must hold {KINDS[self.kind]}, got {KINDS[other]}",
                "Give the feature that dtype",
            )

    def error(self, number: int, rule: str, remedy: str) -> InvalidArgumentError:
        """Returns an error about one example."""
        called = f"example {number} of the batch" if len(self.examples) > 1 else "the example"
        if self.names is not None:
            called += f" ({self.names[number]!r})"
        return InvalidArgumentError(f"Feature {self.name!r} of {called} {rule}. {remedy}.")


def _columns(serialized: Sequence[Any], features: Any, names: Any) -> dict[str, Any]:
    if not isinstance(features, Mapping) or not features:
        raise InvalidArgumentError(
            "features must be a dict with a feature for each key that is wanted, got "
            f"{shown(features)}. Write for example {{'label': FixedLenFeature([], 'int64')}}."
        )
    examples = [_features_of(number, record) for number, record in enumerate(serialized)]
    return {key: _column(key, feature, examples, names) for key, feature in features.items()}


def _features_of(number: int, record: Any) -> Any:
    try:
        return Example.FromString(record).features.feature
    except (DecodeError, TypeError) as error:
        given = f"{len(record)} bytes" if isinstance(record, bytes) else type(record).__name__
        raise InvalidArgumentError(
            "A record must be the bytes of a tf.train.Example, which can't be read from number "
            f"{number} (from 0; {given}): {error}. Pass the records as they are in the file."
        ) from error


def _column(key: str, feature: KeyFeature, examples: Sequence[Any], names: Any) -> Any:
    if not isinstance(feature, _FEATURES):
        raise InvalidArgumentError(
            f"features[{shown(key)}] must be one of "
            f"{', '.join(kind.__name__ for kind in _FEATURES)}, got {shown(feature)}. Use those of "
            "distlab.io."
        )
    name = key
    if isinstance(feature, RaggedFeature) and feature.value_key is not None:
        name = feature.value_key
    of = _Key(name, LISTS[feature.dtype], examples, names)
    if isinstance(feature, FixedLenFeature):
        return _fixed(of, feature)
    if isinstance(feature, FixedLenSequenceFeature):
        return _blocks(of, feature)
    return Ragged(*of.padded(of.rows(missing=()), b"" if feature.dtype == object else 0))


def _fixed(key: _Key, feature: FixedLenFeature) -> np.ndarray:
    size = math.prod(feature.shape)
    rows = key.rows(missing=feature.default)
    for number, row in enumerate(rows):
        if len(row) != size:
            raise key.error(
                number,
                f"must have {size} values for shape {list(feature.shape)}, got {len(row)}",
                "Use VarLenFeature where the number varies",
            )
    return key.joined(rows).reshape(len(rows), *feature.shape)


def _blocks(key: _Key, feature: FixedLenSequenceFeature) -> np.ndarray:
    size = math.prod(feature.shape)
    rows = key.rows(missing=())
    for number, row in enumerate(rows):
        if len(row) % size:
            raise key.error(
                number,
                f"must have a multiple of {size} values for blocks of shape "
                f"{list(feature.shape)}, got {len(row)}",
                "Use VarLenFeature where the number varies",
            )
    dense, _ = key.padded(rows, feature.padding)
    return dense.reshape(len(rows), dense.shape[1] // size, *feature.shape)
