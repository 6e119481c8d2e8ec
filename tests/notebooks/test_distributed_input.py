"""The distributed-input guide gives what TensorFlow's tutorial says, or what it says differs."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.events import Sharding
from tests.notebooks.executed import pictures, read, text_of

NAME = "06_distributed_input"
TUTORIAL = """
Distributed datasets; experimental_distribute_dataset; Usage; Properties; Batching; Sharding;
Prefetching; distribute_datasets_from_function; Distributed iterators; Usages;
Use a Pythonic for loop; Use iter to create an explicit iterator; Using the element_spec property;
Data preprocessing; Preprocessing with a custom training loop; Partial batches; Caveats;
Tensor inputs instead of; experimental_distribute_values_from_function for arbitrary;
from_generator if your input is from a generator
"""
"""The tutorial's sections, in their order."""


def lists(line: str) -> list[Any]:
    """The lists of numbers in a line, in order."""
    return [ast.literal_eval(found) for found in re.findall(r"\[[\d., ]*\]", line)]


def lines_of(notebook: Any, cell_id: str, pattern: str = "") -> list[str]:
    """What a cell printed, line by line; only lines in which the pattern is found."""
    return [line for line in text_of(notebook, cell_id).splitlines() if re.search(pattern, line)]


def test_every_section_of_the_tutorial_is_there_in_order() -> None:
    told = [cell.source for cell in read(NAME).cells if cell.cell_type == "markdown"]
    rest = re.findall(r"^#+ (.*)", "\n".join(told), re.MULTILINE)
    for section in " ".join(TUTORIAL.split()).split("; "):
        places = [n for n, heading in enumerate(rest) if section.lower() in heading.lower()]
        assert places, section
        rest = rest[places[0] :]


def test_batches_are_divided_as_the_tutorial_says(executed: Any) -> None:
    assert [lists(line) for line in lines_of(executed, "divided", "batch \\d+:")] == [
        [[0, 1], [2, 3]],
        [[4], [5]],
        [[0], [1], [2], [3], []],
        [[0, 1], [2, 3], []],
        [[4, 5], [6, 7], []],
        [[0, 1], [2, 3]],
    ]
    assert lines_of(executed, "one-device")[-1] == "ndarray (4, 1) each [0.7]"
    assert text_of(executed, "whole-batches").count(": Array([[1.], ") == 4


def test_workers_get_the_shards_of_the_tutorial(executed: Any) -> None:
    pairs = [[n, n + 1] for n in range(0, 12, 2)]
    shards = {"FILE": (pairs[:3], pairs[3:]), "DATA": (pairs[::2], pairs[1::2])}
    shards |= {"AUTO": shards["FILE"], "OFF": (pairs, pairs)}
    for policy, workers in shards.items():
        said = [lists(line) for line in lines_of(executed, "shards", f"^{policy} ")]
        assert said == list(workers), policy
    assert "fewer files than the 2 workers" in text_of(executed, "too-few-files")
    long, short, *_ = lines_of(executed, "uneven-files")
    assert [len(part) for part in lists(long)] == [2, 2, 2, 2, 1]
    assert [len(part) for part in lists(short)] == [2, 1]


def test_a_functions_batches_are_taken_as_they_are(executed: Any) -> None:
    head, first, second, _ = lines_of(executed, "dataset-function")
    assert head == "features PerReplica:{"
    assert first.endswith(", shape=(4, 16, 1), dtype=float32),")
    assert second == "  1: Array([], shape=(0, 16, 1), dtype=float32)"
    said = [re.findall(r"(\d+) to (\d+)", line) for line in lines_of(executed, "once-batched")[1:]]
    starts = [[(str(n), str(n + 7)) for n in (start, start + 8)] for start in range(0, 64, 16)]
    assert said == starts
    contexts = lines_of(executed, "pipelines", "InputContext")
    assert [re.findall(r"input_pipeline_id=(\d)", line) for line in contexts] == [["0"], ["1"]]
    (parts,) = [lists(line) for line in lines_of(executed, "pipelines", r"^\[")]
    assert parts == [list(range(0, 16, 2)), list(range(1, 16, 2))]
    assert "ArgumentValueError: global_batch_size must be" in text_of(executed, "pipelines")


def test_iterators_give_the_batches_in_every_way(executed: Any) -> None:
    losses = lines_of(executed, "for-loop", "on replica 0: ")
    assert [lists(line)[-1] for line in losses] == [[0.7]] * 5
    assert lists(text_of(executed, "explicit-iterator")) == [[0.7]]
    assert "50 steps" in text_of(executed, "explicit-iterator")
    assert "OutOfRangeError: The dataset ended after 7" in text_of(executed, "the-end")
    assert [lists(line) for line in lines_of(executed, "optional")] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8], []],
    ]
    first, again = lines_of(executed, "position")
    assert lists(first) == lists(again) == [[4, 5], [6, 7]]


def test_preprocessing_gives_numbers_that_can_be_checked(executed: Any) -> None:
    numbers = {"a": 1, "c": 3, "e": 0}
    words = [numbers["ace"[place % 3]] for place in range(12)]
    said = [part for line in lines_of(executed, "vocabulary") for part in lists(line)]
    assert said == [words[place : place + 2] for place in range(0, 12, 2)]
    rows = np.array([1.0, 3.0, 5.0, 7.0])
    found = np.array(re.findall(r"-?\d+\.\d+", text_of(executed, "normalize")), float)
    expected = (rows - rows.mean()) / rows.std()
    np.testing.assert_allclose(found.reshape(4, 2), np.stack([expected] * 2, 1), atol=1e-6)
    assert text_of(executed, "per-worker").endswith(f"{sum(numbers.values())}\n")


def test_an_empty_part_spoils_a_mean_of_means_and_not_a_reduce(executed: Any) -> None:
    last, means, wrong, right = lines_of(executed, "partial")
    assert lists(last) == [[8.0], [9.0], [], []]
    assert means.split()[-4:] == ["8.0", "9.0", "nan", "nan"]
    assert wrong.split()[-1] == "nan"
    assert float(right.split()[-1]) == pytest.approx(np.mean([8, 9]))


def test_the_last_picture_shows_who_got_which_digit(executed: Any, folder: Path) -> None:
    run = dl.Run.open(folder / "runs" / "input")
    sizes = [event.sizes for event in run.events("sharding") if isinstance(event, Sharding)]
    assert sizes == [[6, 6, 4], [2, 2, 0]]
    (picture,) = pictures(executed)
    assert "Batch 1 (of 2 so far, from 0): 4 examples over 3 replicas" in picture["text/plain"]
    assert re.findall(r"CPU:\d +(\S+)", picture["text/plain"]) == ["2", "2", "empty"]
    assert "<img" in picture["text/html"]
