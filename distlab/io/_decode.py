"""decode_raw and decode_csv: numbers in bytes and in lines of text."""

# ruff: noqa: ARG001 - TensorFlow's parameters

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from distlab.errors import InvalidArgumentError
from distlab.text.shown import shown

_PYTHON_DTYPES: Final = {int: np.int32, float: np.float32}
_CSV_DTYPES: Final = ("float32", "float64", "int32", "int64", "object")


def decode_raw(
    input_bytes: Any,
    out_type: Any,
    little_endian: bool = True,
    fixed_length: int | None = None,
    name: str | None = None,
) -> np.ndarray:
    r"""Reads the memory of arrays from `bytes` (`tf.io.decode_raw`).

    Args:
      input_bytes: `bytes`, or an array of them, such as a batch.
      out_type: The dtype of the numbers.
      little_endian: Whether the first byte of a number is the lowest one.
      fixed_length: The number of bytes to read of each: longer ones are cut off, shorter
        ones filled with zeros. None reads all, of one length.
      name: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      An array with one dimension more than `input_bytes`.

    Raises:
      InvalidArgumentError: An argument has another form, or a length does not fit.

    Example:
      >>> import distlab as dl
      >>> dl.io.decode_raw(b"\x01\x00\x02\x00", "int16")
      array([1, 2], dtype=int16)
      >>> images = dl.data.Dataset.from_tensor_slices([bytes(784), bytes(784)])
      >>> next(iter(images.map(lambda image: dl.io.decode_raw(image, "uint8")).batch(2))).shape
      (2, 784)
    """
    dtype = _numeric_dtype(out_type)
    shape, flat = _texts("decode_raw", input_bytes)
    if fixed_length is not None:
        flat = [each[:fixed_length].ljust(fixed_length, b"\0") for each in flat]
    lengths = {len(each) for each in flat} or {0}
    if len(lengths) > 1 or max(lengths) % dtype.itemsize:
        raise InvalidArgumentError(
            f"decode_raw needs bytes of one length, a multiple of {dtype.itemsize}, the size of "
            f"{dtype}, got lengths {sorted(lengths)}. Set fixed_length, or decode before batch."
        )
    stored = dtype.newbyteorder("<" if little_endian else ">")
    numbers = np.frombuffer(b"".join(flat), stored).astype(dtype)
    return numbers.reshape(*shape, lengths.pop() // dtype.itemsize)


def _numeric_dtype(out_type: Any) -> np.dtype[Any]:
    dtype = np.dtype(getattr(out_type, "as_numpy_dtype", out_type))
    if dtype.kind not in "biufc" and dtype.name != "bfloat16":
        raise InvalidArgumentError(
            f"out_type of decode_raw must be a dtype of numbers, got {shown(out_type)}. Pass for "
            "example 'uint8'."
        )
    return dtype


def decode_csv(  # noqa: PLR0917 - TensorFlow's parameters
    records: Any,
    record_defaults: Sequence[Any],
    field_delim: str = ",",
    use_quote_delim: bool = True,
    na_value: str = "",
    select_cols: Sequence[int] | None = None,
    name: str | None = None,
) -> list[Any]:
    """Reads the fields of lines of text (`tf.io.decode_csv`).

    Args:
      records: One line, or an array of lines, as `bytes` or text.
      record_defaults: For each field its default value, whose dtype is that of the
        field: float32, float64, int32, int64 or strings. A list of one value means the
        same. An array without values (`np.zeros(0, np.float32)`) makes the field
        required.
      field_delim: The character between fields.
      use_quote_delim: Whether fields may stand in double quotes.
      na_value: What stands for a missing value, like an empty field.
      select_cols: The numbers of the fields to return, ascending. None returns all.
      name: Ignored; accepted for compatibility with TensorFlow.

    Returns:
      A list of the fields' values, each of the shape of `records`.

    Raises:
      InvalidArgumentError: An argument has another form, a line has another number of
        fields, or a field is missing or of another type.

    Example:
      >>> import distlab as dl
      >>> line = b'5.1,"iris, blue",2'
      >>> dl.io.decode_csv(line, [0.0, "", 0])
      [np.float32(5.1), b'iris, blue', np.int32(2)]
      >>> dl.io.decode_csv(["1,2", ",4"], [-1, 0])
      [array([ 1, -1], dtype=int32), array([2, 4], dtype=int32)]
    """
    shape, lines = _texts("decode_csv", records)
    fields = [_Field.of(number, default) for number, default in enumerate(record_defaults)]
    quoting: Any = csv.QUOTE_MINIMAL if use_quote_delim else csv.QUOTE_NONE
    columns: list[list[Any]] = [[] for _ in fields]
    for number, line in enumerate(lines):
        text = line.decode(errors="surrogateescape")
        try:
            rows = list(csv.reader([text], delimiter=field_delim, quoting=quoting, strict=True))
            (row,) = rows or [[]]
            if select_cols is not None and len(row) > max(select_cols):
                row = [row[column] for column in select_cols]
            if len(row) != len(fields):
                raise ValueError(f"it must have {len(fields)} fields, as record_defaults")
            for column, field, value in zip(columns, fields, row, strict=True):
                column.append(field.read("" if value == na_value else value))
        except (csv.Error, ValueError) as error:
            raise InvalidArgumentError(
                f"Record {number} of decode_csv, {shown(line)}, can't be read: {error}. Give a "
                "default value of the right dtype for each field, and quote fields that hold "
                "quotes or line ends."
            ) from error
    results = [
        np.array(column, field.dtype).reshape(shape)
        for column, field in zip(columns, fields, strict=True)
    ]
    return [result if shape else result[()] for result in results]


class _Field(NamedTuple):
    """A field of the lines; without a default value it is required."""

    number: int
    dtype: np.dtype[Any]
    default: Any

    @classmethod
    def of(cls, number: int, default: Any) -> _Field:
        """Returns the field with an entry of record_defaults."""
        first = default[0] if isinstance(default, list | tuple) and default else default
        array = np.asarray(default)
        dtype: np.dtype[Any] = np.dtype(_PYTHON_DTYPES.get(type(first), array.dtype))
        flat = array.ravel().tolist()
        if dtype.kind in "SU":
            dtype = np.dtype(object)
            flat = [item.encode() if isinstance(item, str) else item for item in flat]
        if dtype.name not in _CSV_DTYPES or len(flat) > 1 or isinstance(first, type):
            raise InvalidArgumentError(
                f"record_defaults[{number}] must be one value of float32, float64, int32, int64 "
                f"or text, or an empty array of such a dtype, got {shown(default)}. Write for "
                "example 0.0, or np.zeros(0, np.float32) for a field that is required."
            )
        return cls(number, dtype, flat[0] if flat else None)

    def read(self, text: str) -> Any:
        """Returns the value of a text."""
        if not text:
            if self.default is None:
                raise ValueError(f"field {self.number} is required, and is missing")
            return self.default
        if self.dtype.kind == "O":
            return text.encode(errors="surrogateescape")
        try:
            return self.dtype.type(int(text) if self.dtype.kind == "i" else float(text))
        except (ValueError, OverflowError):
            raise ValueError(
                f"field {self.number} must be a valid {self.dtype}, got {shown(text)}"
            ) from None


def _texts(verb: str, given: Any) -> tuple[tuple[int, ...], list[bytes]]:
    """Returns the shape and the items of strings."""
    try:
        array = np.asarray(given, dtype=object)
    except Exception:  # noqa: BLE001 - deleted arrays and random keys have errors of their own
        array = np.array(None)
    flat = [item.encode() if isinstance(item, str) else item for item in array.ravel().tolist()]
    if not all(isinstance(item, bytes) for item in flat):
        raise InvalidArgumentError(
            f"{verb} needs bytes or an array of bytes, got {shown(given)}. Pass the elements of a "
            "dataset of files or records."
        )
    return array.shape, flat
