"""Texts of the values that collectives combine."""

from __future__ import annotations

import msgspec
import pytest

from distlab.events import Collective, Step
from distlab.folds.reductions import Reductions, combined
from tests.synthetic import compiled, steps


def collective(*values: str, operands: int | None = None) -> Collective:
    return Collective(
        kind="all-reduce",
        operand_bytes=4,
        dtype="f32",
        operands=len(values) if operands is None else operands,
        participants=4,
        times_per_step=1,
        source="",
        values=list(values),
    )


@pytest.mark.parametrize(
    ("one", "text", "largest"),
    [
        (collective(), "", ""),
        (collective("f32[]"), "1 number", ""),
        (collective("f32[]", "s32[] from jit(f)/psum at t.py:3"), "2 numbers", ""),
        (collective("f32[8] like w"), "1 array like w", "like w"),
        (collective("f32[8,2]"), "1 array float32[8,2]", "float32[8,2]"),
        (
            collective("f32[] from a at t.py:1", "bf16[4,4] like w or v from b", "f32[2,2] like u"),
            "2 arrays and 1 number",
            "like w or v",
        ),
        (collective("f32[9]", "f32[8] like w", operands=70), "70 arrays", "float32[9]"),
        (collective("pred[<=8] like mask"), "1 array like mask", "like mask"),
    ],
)
def test_operands_are_counted_and_the_largest_is_named(
    one: Collective, text: str, largest: str
) -> None:
    found = combined(one)
    assert (found.text, found.largest) == (text, largest)


def test_values_have_numpy_types_and_the_largest_comes_first() -> None:
    values = ("f32[] from jit(f)/psum at t.py:3", "s32[8,2] like w from x")
    for one in (collective(*values), collective(*values[::-1])):
        assert combined(one).values == ("int32[8,2] like w", "float32[]")


def test_collectives_of_one_size_and_other_arrays_are_own_rows() -> None:

    fold = Reductions()
    program = msgspec.structs.replace(
        compiled(4),
        collectives=[collective("f32[2,3] like a"), collective("f32[3,2] like b")] * 2,
    )
    fold.add([program, *(one for one in steps(2) if isinstance(one, Step))])
    columns = fold.columns()
    inside = [place for place, yes in enumerate(columns["inside"]) if yes]
    assert [columns["what"][place] for place in inside] == ["1 array like a", "1 array like b"]
    assert [columns["count"][place] for place in inside] == [4, 4]
