"""The notebook about batches: who got what is found here once more, by other means."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits

import distlab as dl
from distlab.events import Sharding
from tests.notebooks.executed import html_of, pictures, text_of

NAME = "02_how_a_batch_is_divided"
EMPTY: list[int] = []


def divided(examples: range, replicas: int) -> list[list[int]]:
    """Deals examples out one replica after another, as evenly full as the first one."""
    most = min(size for size in range(len(examples) + 1) if size * replicas >= len(examples))
    parts: list[list[int]] = [[] for _ in range(replicas)]
    for place, example in enumerate(examples):
        parts[place // most].append(example)
    return parts


def sizes(batch: int, examples: int, replicas: int) -> list[list[int]]:
    """How many examples each replica gets in each step."""
    starts = range(0, examples, batch)
    batches = [range(start, min(start + batch, examples)) for start in starts]
    return [[len(part) for part in divided(each, replicas)] for each in batches]


def steps_of(text: str) -> list[list[list[int]]]:
    """The parts in lines such as `step 0: [0 1]  [2]  -`."""
    lines = re.findall(r"^step \d+: (.*)$", text, re.MULTILINE)
    parts = [re.findall(r"\[[\d ]+\]|-", line) for line in lines]
    return [[[int(n) for n in re.findall(r"\d+", part)] for part in line] for line in parts]


def test_each_replica_gets_what_the_rule_says(executed: Any) -> None:
    said = text_of(executed, "rule")
    assert steps_of(said) == [divided(range(16), 8), divided(range(16, 20), 8)]
    full, partial = sizes(16, 20, 8)
    assert f"by the rule: {full} and {partial}" in said


def test_the_last_batch_is_a_table_of_components(executed: Any) -> None:
    shown = html_of(executed, "per-replica")
    rows = re.findall(r"<td[^>]*>CPU:(\d)</td><td[^>]*>\[(\d)\]</td>", shown)
    assert rows == [(str(replica), "1" if replica < 4 else "0") for replica in range(8)]
    assert "int32[?]" in html_of(executed, "spec")


def test_the_picture_shows_the_batch_that_was_recorded(executed: Any, folder: Path) -> None:
    with dl.Run.open(folder / "runs" / "divided") as run:
        recorded = [event.sizes for event in run.events("sharding") if isinstance(event, Sharding)]
    assert recorded == sizes(64, 69, 8)
    picture, _ = pictures(executed)
    text = picture["text/plain"]
    assert "Batch 1 (of 2 so far, from 0): 5 examples over 8 replicas" in text
    shown = re.findall(r"^  CPU:\d +(\d of 8|empty)", text, re.MULTILINE)
    assert shown == ["1 of 8"] * 5 + ["empty"] * 3
    assert picture["text/html"].count("<img") == 5
    labels = re.findall(r'alt="(\d)"', picture["text/html"])
    assert [int(label) for label in labels] == load_digits().target[64:69].tolist()


def test_only_the_mean_over_examples_is_that_of_one_device(executed: Any) -> None:
    said = text_of(executed, "empty")
    images = load_digits().images[:69].astype("float32") / 16
    own = re.findall(r"\S+", said.splitlines()[0].partition(":")[2])
    assert own == [f"{image.mean():.4f}" for image in images[64:]] + ["nan"] * 3
    assert re.search(r"mean of those means: +nan$", said, re.MULTILINE)
    found = re.findall(r"(?:over examples|on one device): +([\d.]+)$", said, re.MULTILINE)
    assert [float(mean) for mean in found] == pytest.approx([images[64:].mean()] * 2, rel=1e-6)


def test_remainders_are_dropped_and_parts_taken_in_turn(executed: Any) -> None:
    kept, dropped = text_of(executed, "drop").splitlines()
    assert kept.split(maxsplit=1)[1] == f"69 examples seen, {sizes(64, 69, 8)}"
    assert dropped.split(maxsplit=1)[1] == f"64 examples seen, {sizes(64, 64, 8)}"
    said = text_of(executed, "function")
    assert "called for 8 replicas, so 2 examples in a batch" in said
    pairs = [[n, n + 1] for n in range(0, 20, 2)]
    assert steps_of(said) == [pairs[:8], pairs[8:] + [EMPTY] * 6]
    own = [list(range(replica, 20, 8)) for replica in range(8)]
    taken = steps_of(text_of(executed, "own"))
    assert taken == [[part[start : start + 2] for part in own] for start in (0, 2)]


def test_sizes_must_divide_and_policies_fill_replicas(executed: Any) -> None:
    said = text_of(executed, "context")
    assert "worker 1 of 2: 4 examples for each replica" in said
    assert "multiple of num_replicas_in_sync (4), got 18. Use a multiple, or" in said
    spread, filled = sizes(16, 20, 8)[1], [2, 2, 0, 0, 0, 0, 0, 0]
    assert text_of(executed, "off").splitlines() == [
        f"DATA {spread}",
        f"FILE {filled}",
        f"OFF  {filled}",
    ]


def test_it_ends_with_numbers_to_change(executed: Any, folder: Path) -> None:
    expected = sizes(24, 50, 3)
    lines = [f"step {step}: {part}, by the rule {part}" for step, part in enumerate(expected)]
    printed = [line for line in text_of(executed, "change").splitlines() if line.startswith("step")]
    assert printed == lines
    with dl.Run.open(folder / "runs" / "mine") as run:
        recorded = [event.sizes for event in run.events("sharding") if isinstance(event, Sharding)]
    assert recorded == expected
    assert "Batch 2 (of 3 so far, from 0): 2 examples over 3" in pictures(executed)[1]["text/plain"]
