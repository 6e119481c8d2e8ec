"""decode_raw and decode_csv: numbers in bytes and in lines of text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from distlab.errors import InvalidArgumentError
from distlab.text.counts import is_positive_count
from distlab.text.shown import shown

_PYTHON_DTYPES: Final = {int: np.int32, float: np.float32}
_MOST_BYTES: Final = (1 << 31) - 1
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
    del name
    dtype = _numeric_dtype(out_type)
    shape, flat = _texts("decode_raw", input_bytes)
    if fixed_length is not None:
        if not is_positive_count(fixed_length, _MOST_BYTES):
            raise InvalidArgumentError(
                f"fixed_length of decode_raw must be a number of bytes from 1 to {_MOST_BYTES}, "
                f"got {shown(fixed_length)}. Leave it out to read all bytes."
            )
        flat = [each[:fixed_length].ljust(fixed_length, b"\0") for each in flat]
    lengths = {len(each) for each in flat}
    if len(lengths) > 1:
        raise InvalidArgumentError(
            f"decode_raw needs bytes of one length, got lengths {sorted(lengths)}. Set "
            "fixed_length, or decode before batch."
        )
    length = lengths.pop() if lengths else 0
    if length % dtype.itemsize:
        raise InvalidArgumentError(
            f"The length of bytes must be a multiple of {dtype.itemsize}, the size of {dtype}, got "
            f"{length}. Use the dtype that was written."
        )
    stored = dtype.newbyteorder("<" if little_endian else ">")
    numbers = np.frombuffer(b"".join(flat), stored).astype(dtype)
    return numbers.reshape(*shape, length // dtype.itemsize)


def _numeric_dtype(out_type: Any) -> np.dtype[Any]:
    try:
        dtype = np.dtype(getattr(out_type, "as_numpy_dtype", out_type))
    except Exception:  # noqa: BLE001 - any code of the user's
        dtype = np.dtype(object)
    if out_type is None or (dtype.kind not in "biufc" and dtype.name != "bfloat16"):
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
    del name
    if not isinstance(record_defaults, list | tuple | np.ndarray):
        raise InvalidArgumentError(
            "record_defaults of decode_csv must be a list with a default value for each field, got "
            f"{shown(record_defaults)}. Write for example [0.0, '']."
        )
    shape, lines = _texts("decode_csv", records)
    fields = [_field(number, default) for number, default in enumerate(record_defaults)]
    columns: list[list[Any]] = [[] for _ in fields]
    for number, line in enumerate(lines):
        text = line.decode(errors="surrogateescape")
        try:
            row = _split(text, field_delim, quotes=use_quote_delim)
        except (csv.Error, ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"Record {number} of decode_csv, {shown(line)}, can't be read: {error}. Quote "
                "fields that hold quotes or line ends."
            ) from error
        if select_cols is not None and row and len(row) > max(select_cols):
            row = [row[column] for column in select_cols]
        if len(row) != len(fields):
            raise InvalidArgumentError(
                f"Record {number} of decode_csv must have {len(fields)} fields, as "
                f"record_defaults, got {len(row)}: {shown(line)}. Give a default for each field."
            )
        for column, field, value in zip(columns, fields, row, strict=True):
            column.append(field.read(number, "" if value == na_value else value))
    results = [
        np.array(column, field.dtype).reshape(shape)
        for column, field in zip(columns, fields, strict=True)
    ]
    return [result if shape else result[()] for result in results]


def _split(line: str, delimiter: str, *, quotes: bool) -> list[str]:
    quoting: Any = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    rows = list(csv.reader([line], delimiter=delimiter, quoting=quoting, strict=True))
    (row,) = rows or [[]]
    return row


class _Field(NamedTuple):
    """A field of the lines.

    Attributes:
      number: Its number.
      dtype: Its dtype.
      convert: Makes a value of text.
      default: Its default value; None if it is required.
    """

    number: int
    dtype: np.dtype[Any]
    convert: Callable[[str], Any]
    default: Any

    def read(self, record: int, text: str) -> Any:
        if not text:
            if self.default is None:
                raise InvalidArgumentError(
                    f"Field {self.number} of record {record} is required, and is missing. Give it "
                    "a default value, or leave the record out."
                )
            return self.default
        try:
            value = self.convert(text)
            if self.dtype.kind == "i":
                value = self.dtype.type(value)
        except (ValueError, OverflowError):
            raise InvalidArgumentError(
                f"Field {self.number} of record {record} must be a valid {self.dtype}, got "
                f"{shown(text)}. Give it a default value of another dtype."
            ) from None
        return value


def _field(number: int, default: Any) -> _Field:
    values = [default] if isinstance(default, str | bytes) else default
    try:
        array = np.asarray(values)
    except Exception:  # noqa: BLE001 - any code of the user's
        array = np.empty(0, object)
    flat = array.ravel().tolist()
    first = default[0] if isinstance(default, list | tuple) and default else default
    dtype = np.dtype(_PYTHON_DTYPES.get(type(first), array.dtype))
    if dtype.kind in "SU":
        dtype = np.dtype(object)
        flat = [item.encode() if isinstance(item, str) else item for item in flat]
    if dtype.name not in _CSV_DTYPES or len(flat) > 1 or isinstance(first, type):
        raise InvalidArgumentError(
            f"record_defaults[{number}] must be one value of float32, float64, int32, int64 or "
            f"text, or an empty array of such a dtype, got {shown(default)}. Write for example "
            "0.0, or np.zeros(0, np.float32) for a field that is required."
        )
    converters: dict[str, Callable[[str], Any]] = {"O": _encoded, "f": float, "i": int}
    return _Field(number, dtype, converters[dtype.kind], flat[0] if flat else None)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


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
