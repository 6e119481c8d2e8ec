"""from_generator: types, shapes, arguments, and what breaks their promise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from distlab.data import Dataset, TensorSpec
from distlab.errors import (
    ArgumentTypeError,
    InvalidArgumentError,
    StructureError,
    ValueShapeError,
)


def _pairs(count: Any = 3) -> Iterator[Any]:
    for i in range(int(count)):
        yield i, [float(i), 1.0]


def test_each_iteration_calls_it_anew_with_its_arguments() -> None:
    dataset = Dataset.from_generator(_pairs, (np.int64, jnp.float32), ((), (2,)), args=(2,))
    for _ in range(2):
        (number, row), _last = dataset
        assert (number, number.dtype) == (0, np.int64)
        assert (row.tolist(), row.dtype) == ([0.0, 1.0], np.float32)


def test_without_shapes_or_types_the_first_element_tells() -> None:
    assert Dataset.from_generator(_pairs).element_spec[1] == TensorSpec(
        (None,), np.dtype("float32")
    )
    assert Dataset.from_generator(_pairs, (np.int8, np.float64)).element_spec == (
        TensorSpec((), np.dtype("int8")),
        TensorSpec((None,), np.dtype("float64")),
    )


def test_text_is_called_string_as_in_tensorflow() -> None:
    untyped: Any = TensorSpec
    spec = untyped([None], "string")
    assert spec == TensorSpec((None,), np.dtype(object))
    for signature in (
        {"output_signature": {"name": spec}},
        {"output_types": {"name": "string"}},
        {"output_types": {"name": "string"}, "output_shapes": {"name": [None]}},
    ):
        rows: Any = lambda: iter([{"name": ["a", "bc"]}, {"name": []}])  # noqa: E731
        dataset = Dataset.from_generator(rows, **signature)
        assert [row["name"].tolist() for row in dataset] == [[b"a", b"bc"], []]
        assert dataset.element_spec["name"] == spec
    with pytest.raises(ArgumentTypeError, match=r"got 'text'\. Write .* 'string' for text"):
        Dataset.from_generator(_pairs, "text")


@pytest.mark.parametrize(
    ("element", "types", "shapes", "error"),
    [
        ([1, 2, 3], np.int32, (2,), ValueShapeError),
        (2**40, np.int32, (), ValueShapeError),
        ({"b": 1}, {"a": np.int32}, {"a": ()}, StructureError),
    ],
)
def test_broken_promises_are_refused(
    element: Any, types: Any, shapes: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        list(Dataset.from_generator(lambda: iter([element]), types, shapes))


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="as_dataset"):
        Dataset.from_generator(iter([1]))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="not both"):
        Dataset.from_generator(_pairs, np.int32, output_signature=TensorSpec((), np.dtype(int)))
    with pytest.raises(InvalidArgumentError, match="only with output_types"):
        Dataset.from_generator(_pairs, output_shapes=())
    with pytest.raises(StructureError, match=r"output_shapes .* must have the structure"):
        Dataset.from_generator(_pairs, (np.int32, np.int32), ((),))


def test_a_generator_without_elements_tells_no_spec() -> None:
    dataset = Dataset.from_generator(lambda: iter(()), np.int32)
    assert list(dataset) == []
    with pytest.raises(InvalidArgumentError, match="output_signature"):
        _ = dataset.element_spec


def test_it_is_closed_when_the_iteration_is_left() -> None:
    closed = []

    def watched() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.append(True)

    iterator = iter(Dataset.from_generator(watched).batch(2))
    next(iterator)
    iterator.close()
    assert closed == [True]
