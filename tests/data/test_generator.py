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


def test_specs_are_what_was_promised() -> None:
    typed = Dataset.from_generator(_pairs, (np.int32, np.float32), ((), [None]))
    signed = Dataset.from_generator(
        _pairs,
        output_signature=(
            TensorSpec((), np.dtype("int32")),
            TensorSpec((None,), np.dtype("float32")),
        ),
    )
    assert (
        typed.element_spec
        == signed.element_spec
        == (
            TensorSpec((), np.dtype("int32")),
            TensorSpec((None,), np.dtype("float32")),
        )
    )


def test_without_shapes_or_types_the_first_element_tells() -> None:
    assert Dataset.from_generator(_pairs).element_spec[1] == TensorSpec(
        (None,), np.dtype("float32")
    )
    assert Dataset.from_generator(_pairs, (np.int8, np.float64)).element_spec == (
        TensorSpec((), np.dtype("int8")),
        TensorSpec((None,), np.dtype("float64")),
    )


def test_strings_and_dicts() -> None:
    dataset = Dataset.from_generator(
        lambda: iter([{"name": "a", "n": 1}]), {"name": str, "n": np.int32}
    )
    assert list(dataset) == [{"name": b"a", "n": 1}]


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


def test_batches_of_a_generator() -> None:
    batches = Dataset.from_generator(_pairs, (np.int32, np.float32)).batch(2)
    assert [numbers.tolist() for numbers, _ in batches] == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("elements", "types", "shapes", "error"),
    [
        ([[1, 2, 3]], np.int32, (2,), ValueShapeError),
        ([2**40], np.int32, (), ValueShapeError),
        (["a"], np.int32, (), ValueShapeError),
        ([(1, 2, 3)], (np.int32, np.int32), ((), ()), StructureError),
        ([{"b": 1}], {"a": np.int32}, {"a": ()}, StructureError),
    ],
)
def test_broken_promises_are_refused(
    elements: Any, types: Any, shapes: Any, error: type[Exception]
) -> None:
    dataset = Dataset.from_generator(lambda: iter(elements), types, shapes)
    with pytest.raises(error):
        list(dataset)


def test_bad_arguments_are_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="as_dataset"):
        Dataset.from_generator(iter([1]))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="not both"):
        Dataset.from_generator(_pairs, np.int32, output_signature=TensorSpec((), np.dtype(int)))
    with pytest.raises(InvalidArgumentError, match="only with output_types"):
        Dataset.from_generator(_pairs, output_shapes=())
    with pytest.raises(StructureError, match="structure of output_types"):
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


def test_an_array_that_the_generator_fills_again_is_not_shared() -> None:
    def refill() -> Any:
        buffer = np.zeros(2, np.float32)
        for number in range(4):
            buffer[:] = number
            yield {"x": buffer}, (buffer[:1],)

    signature = (
        {"x": TensorSpec((2,), np.dtype(np.float32))},
        (TensorSpec((1,), np.dtype(np.float32)),),
    )
    for promised in (None, signature):
        dataset = Dataset.from_generator(refill, output_signature=promised)
        assert [element[0]["x"].tolist() for element in list(dataset)] == [[n, n] for n in range(4)]
        (batch,) = dataset.shuffle(1).batch(4)
        assert batch[1][0].tolist() == [[0], [1], [2], [3]]


@pytest.mark.parametrize("function", [lambda: 3, lambda: None])
def test_a_function_must_return_an_iterable(function: Any) -> None:
    with pytest.raises(StructureError, match=r"must return an iterable, got .* Write a function"):
        list(Dataset.from_generator(function, np.int32, ()))


def test_a_function_may_return_what_only_has_items() -> None:
    class Squares:
        def __getitem__(self, index: int) -> int:
            if index == 3:
                raise IndexError
            return index * index

    squares: Any = Squares
    assert list(Dataset.from_generator(squares, np.int32, ())) == [0, 1, 4]


def test_a_dtype_with_fields_is_refused() -> None:
    with pytest.raises(StructureError, match=r"the fields \('a',\)\. Make a dict"):
        Dataset.from_generator(_pairs, np.dtype([("a", "f4")]), ())


class _Again:
    """Begins anew each time it is asked for its iterator, which is itself."""

    def __iter__(self) -> _Again:
        self._next = 0
        return self

    def __next__(self) -> int:
        if self._next == 3:
            raise StopIteration
        self._next += 1
        return self._next


def test_an_iterator_that_begins_anew_is_read_again() -> None:
    again = _Again()
    dataset = Dataset.from_generator(lambda: again, output_types=np.int64)
    assert [int(x) for x in dataset.repeat(2)] == [1, 2, 3, 1, 2, 3]


def test_an_element_that_is_read_for_the_spec_comes_once() -> None:
    calls = []

    def three() -> Iterator[int]:
        calls.append(1)
        yield from range(3)

    dataset = Dataset.from_generator(three, output_types=np.int64)
    for _ in range(2):
        assert dataset.element_spec.rank == 0
        assert [int(x) for x in dataset] == [0, 1, 2]
    assert [int(x) for x in dataset.repeat(2)] == [0, 1, 2, 0, 1, 2]


def test_each_pass_has_the_arguments_that_were_passed() -> None:
    numbers = np.arange(3)

    def drawn(values: Any) -> Iterator[Any]:
        values += 1  # as one that shuffles them in place
        yield values

    signature = TensorSpec((3,), np.dtype(np.int64))
    dataset = Dataset.from_generator(drawn, args=(numbers,), output_signature=signature)
    numbers[:] = 9
    for _ in range(2):
        assert [row.tolist() for row in dataset] == [[1, 2, 3]]
    assert numbers.tolist() == [9, 9, 9]
