"""The table of compiled programs: columns of the fold, and texts of the page."""

from __future__ import annotations

import pytest
from msgspec import structs

from distlab.events import Compile, Event
from distlab.folds import Folds
from distlab.page.programs import NAMES, program_rows
from tests.synthetic import START_NS, beginning, compiled, steps


def program(number: int, **changes: object) -> Compile:
    return structs.replace(
        compiled(8), program=number, time_ns=START_NS + number * 1_000_000_000, **changes
    )


def rows(*events: Event) -> dict[str, list[str]]:
    folds = Folds()
    folds.add([*beginning(), *events])
    return program_rows(folds.columns("programs"))


def test_newest_program_comes_first_with_steps_that_ran_it() -> None:
    folds = Folds()
    folds.add([*beginning(), *steps(7), program(5, cause="new shapes")])
    columns = folds.columns("programs")
    assert columns["cause"] == ["new shapes", "new function"]
    assert columns["steps"] == [0, 7]
    assert columns["at_s"][0] == 5.0
    assert columns["compiling_s"] == 2 * 0.11


def test_a_program_says_why_it_was_made_and_what_it_holds() -> None:
    collective = structs.replace(
        compiled(8).collectives[0],
        times_per_step=12,
        wire_bytes=16_870,
        group=8,
        values=["f32[64,32] like kernel", "f32[32] like bias"],
    )
    texts = rows(
        program(
            3,
            cause="new shapes",
            changed="x: float32[8, 64] -> float32[5, 64]",
            flops=19.4e6,
            peak_bytes=1_210_000,
            argument_bytes=600_000,
            output_bytes=600_000,
            temp_bytes=10_000,
            source="train.py:31",
            collectives=[collective],
        )
    )
    assert set(texts) == set(NAMES)
    newest = {name: column[0] for name, column in texts.items()}
    assert newest["function"] == "train_step"
    assert newest["function_full"] == "train.py:31: x: float32[8,64]; y: int32[8]"
    assert newest["why"] == "new shapes: x: float32[8, 64] \u2192 float32[5, 64]"
    assert newest["compiled"] == "at 3.0 s, in 110 ms"
    assert newest["work"] == "19.4 MFLOP"
    assert newest["memory"] == "1.21 MB"
    assert newest["memory_full"] == "arguments 600 kB, outputs 600 kB, scratch 10.0 kB"
    assert newest["collectives"] == "12 \u00d7 all-reduce of 9.64 kB"
    assert newest["collectives_full"] == (
        "12 \u00d7 all-reduce of 9.64 kB: f32[64,32] like kernel, f32[32] like bias, each device "
        "sends 16.9 kB (in groups of 8)"
    )


def test_unknown_figures_are_dashes_and_old_programs_counted() -> None:
    texts = rows(program(1, collectives=[]))
    assert (texts["work"][0], texts["memory"][0], texts["collectives"][0]) == (
        "\u2013",
        "\u2013",
        "none",
    )
    folds = Folds()
    folds.add([beginning()[0], *(program(number) for number in range(320))])
    columns = folds.columns("programs")
    assert (len(columns["function"]), columns["rows_left_out"]) == (300, 20)
    assert columns["compiled_s"] == pytest.approx(319 * 0.11)  # the first was there before the run
