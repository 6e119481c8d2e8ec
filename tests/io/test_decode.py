"""decode_raw and decode_csv: what TensorFlow 2.21 gives for the same calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.errors import InvalidArgumentError
from distlab.io import decode_csv, decode_raw

REQUIRED = np.zeros(0, np.float32)


@pytest.mark.parametrize(
    ("given", "dtype", "options", "expected"),
    [
        (b"\x01\x00\x02\x00", np.int16, {}, [1, 2]),
        (b"\x00\x01\x00\x02", "int16", {"little_endian": False}, [1, 2]),
        ([b"\x01\x00", b"\x02\x00"], np.uint8, {}, [[1, 0], [2, 0]]),
        ([b"a", b"bcd"], np.uint8, {"fixed_length": 2}, [[97, 0], [98, 99]]),
        (b"\x01\x00\x02", np.bool_, {}, [True, False, True]),
        (b"", np.float32, {}, []),
    ],
)
def test_raw_bytes(given: Any, dtype: Any, options: dict[str, Any], expected: Any) -> None:
    decoded = decode_raw(given, dtype, **options)
    assert decoded.dtype == np.dtype(dtype)
    assert decoded.tolist() == expected


@pytest.mark.parametrize(
    ("line", "defaults", "options", "expected"),
    [
        ("1,2.5,a", [[0], [0.0], [""]], {}, [1, 2.5, b"a"]),
        (" 1 , 2.5 , a ", [0, 0.0, ""], {}, [1, 2.5, b" a "]),
        (",,", [7, 8.5, "x"], {}, [7, 8.5, b"x"]),
        ("2,1", [REQUIRED, 0], {}, [2.0, 1]),
        ("NA,NA", [1.0, "z"], {"na_value": "NA"}, [1.0, b"z"]),
        ('"a,b","say ""hi""",c', ["", "", ""], {}, [b"a,b", b'say "hi"', b"c"]),
        ('"a\nb",c', ["", ""], {}, [b"a\nb", b"c"]),
        ('"a,b"', ["", ""], {"use_quote_delim": False}, [b'"a', b'b"']),
        ("1099511627776", [np.int64(0)], {}, [2**40]),
        ("1,2,3", [0, 0], {"select_cols": [0, 2]}, [1, 3]),
        ("1\t2", [0, 0], {"field_delim": "\t"}, [1, 2]),
        (b"\xff,1", ["", 0], {}, [b"\xff", 1]),
    ],
)
def test_lines_of_fields(line: Any, defaults: Any, options: Any, expected: Any) -> None:
    assert decode_csv(line, defaults, **options) == expected
    batch = decode_csv([line, line], defaults, **options)
    assert [column.tolist() for column in batch] == [[value, value] for value in expected]


def test_dtypes_are_those_of_the_defaults() -> None:
    fields = decode_csv("1,2,3,4,5", [0, 0.0, np.int64(0), np.float64(0), ""])
    assert [type(field) for field in fields] == [
        *(np.int32, np.float32, np.int64, np.float64, bytes)
    ]


@pytest.mark.parametrize(
    ("line", "defaults", "message"),
    [
        (",1", [REQUIRED, 0], "Record 0 .* field 0 is required, and is missing"),
        ('"ab,c', ["", ""], "Record 0 of decode_csv.*can't be read"),
        ("1", [0, 0], "must have 2 fields"),
        ("x", [0], "field 0 must be a valid int32, got 'x'"),
        ("1", [[1, 2]], r"record_defaults\[0\] must be one value"),
    ],
)
def test_lines_that_do_not_fit_are_refused(line: Any, defaults: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        decode_csv(line, defaults)


def test_a_csv_file_as_a_dataset(tmp_path: Any) -> None:
    """The California housing pipeline of a well-known book, on three lines."""
    path = tmp_path / "housing.csv"
    path.write_text("income,age,price\n8.3,41,4.5\n8.2,,3.6\n7.2,52,3.5\n")
    defaults = [0.0, 30.0, np.zeros(0, np.float32)]

    def preprocess(line: bytes) -> tuple[Any, Any]:
        *inputs, price = decode_csv(line, defaults)
        return np.stack(inputs), price

    lines = dl.data.TextLineDataset(path).skip(1)
    ((x, y),) = lines.map(preprocess).batch(3)
    np.testing.assert_allclose(x, [[8.3, 41], [8.2, 30], [7.2, 52]], rtol=1e-6)
    np.testing.assert_allclose(y, [4.5, 3.6, 3.5], rtol=1e-6)
