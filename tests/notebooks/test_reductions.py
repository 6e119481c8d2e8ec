"""The notebook about reductions: sums, sizes and what the events said of them."""

from __future__ import annotations

import ast
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

import distlab as dl
from distlab.events import Compile, Reduction
from tests.notebooks.executed import html_of, pictures, text_of

NAME = "04_reductions"
ALGORITHMS = ["NcclAllReduce", "HierarchicalCopyAllReduce", "ReductionToOneDevice"]
SIZES = [1 << 10, 1 << 13, 1 << 16, 1 << 18]


def times_the_value(algorithm: str, replicas: int) -> tuple[int, float]:
    """How many collectives it takes, and how often each of them sends the value in all."""
    if algorithm == "NcclAllReduce":
        return 1, 2 * (replicas - 1) / replicas
    if algorithm == "ReductionToOneDevice":
        return 2 * (replicas - 1), 2 * (replicas - 1)
    rounds = 2 * (replicas - 1).bit_length()
    return rounds, rounds


def test_reduce_combines_replicas_and_with_an_axis_examples(executed: Any) -> None:
    ranks = np.arange(8.0)
    assert text_of(executed, "outside").split() == [
        "SUM",
        f"{ranks.sum()}",
        "MEAN",
        f"{ranks.mean()}",
    ]
    said = text_of(executed, "axis")
    assert "examples [3, 3, 3, 3, 3, 3, 2, 0]" in said
    numbers = np.arange(20)
    assert f"SUM  {numbers.sum()}\nMEAN {numbers.mean()}\n" in said
    assert "Use axis=0 to reduce over the batch as well." in said


def test_each_replica_gets_the_result_of_all(executed: Any) -> None:
    lines = text_of(executed, "inside").splitlines()
    sums, counts, apart = (ast.literal_eval(line.partition(":")[2].strip()) for line in lines)
    assert sums == [sum(range(8))] * 8
    assert counts == [[8.0, 8.0]] * 8
    assert apart == [rank - 3.5 for rank in range(8)]


def test_all_algorithms_give_the_same_sum(executed: Any) -> None:
    pattern = r"^(\w+) +largest difference ([\d.e+-]+),"
    found = re.findall(pattern, text_of(executed, "algorithms"), re.MULTILINE)
    assert [name for name, _ in found] == ALGORITHMS
    assert all(0 < float(off) < 1e-5 for _, off in found)


def test_the_bytes_sent_are_those_recorded_and_those_of_theory(executed: Any, folder: Path) -> None:
    size = 1 << 16
    with dl.Run.open(folder / "runs" / "moved") as run:
        programs = [event for event in run.events("compile") if isinstance(event, Compile)]
    recorded = [
        (len(program.collectives), sum(each.wire_bytes or 0 for each in program.collectives))
        for program in programs
        if program.function == "total" and program.arguments == [f"x: float32[{size // 4}]"]
    ]
    theory = [times_the_value(name, 8) for name in ALGORITHMS]
    assert recorded == [(count, times * size) for count, times in theory]
    shown = text_of(executed, "moved").splitlines()[1:]
    for line, name, (count, times) in zip(shown, ALGORITHMS, theory, strict=True):
        kind = "all-reduce" if name == "NcclAllReduce" else "collective-permute"
        assert line.split() == [
            name, str(count), "x", kind, f"{size:,}", f"{int(times * size):,}",
            "=", f"{times:g}", "times", "the", "value",
        ]  # fmt: skip


def times_told(executed: Any) -> dict[str, list[list[float]]]:
    """The medians: for each table, the rows in the order of the algorithms."""
    tables: dict[str, list[list[float]]] = {}
    for line in text_of(executed, "time").splitlines():
        words = line.split()
        if "milliseconds" in line:
            title = line.partition(":")[0]
            tables[title] = []
        elif words[0] in ALGORITHMS:
            tables[title].append([float(word) for word in words[1:]])
        else:
            assert [int(word.replace(",", "")) for word in words] == SIZES
    return tables


def test_times_are_told_for_each_algorithm_and_size(executed: Any) -> None:
    tables = times_told(executed)
    assert list(tables) == ["Inside of a step", "From Python"]
    page = unescape(html_of(executed, "picture"))
    assert re.search(r"<(script|link|img)[^>]*(src|href)=", page) is None
    for rows in tables.values():
        assert [len(row) for row in rows] == [len(SIZES)] * len(ALGORITHMS)
        assert all(time > 0 for row in rows for time in row)


def test_reductions_from_python_are_printed_and_shown_as_recorded(
    executed: Any, folder: Path
) -> None:
    with dl.Run.open(folder / "runs" / "reduced") as run:
        events = [event for event in run.events("reduction") if isinstance(event, Reduction)]
    ways = ["to_one_device", "all_reduce", "hierarchical_copy", "to_one_device"]
    expected = [("MEAN", way, size, 8) for way in ways for size in (1 << 10, 1 << 18)]
    assert [(e.op, e.algorithm, e.bytes, e.participants) for e in events] == expected
    pattern = r"^reduce (\w+) by (\w+) +([\d,]+) bytes of float32 on each of (\d) replicas$"
    said = re.findall(pattern, text_of(executed, "recorded"), re.MULTILINE)
    assert [(op, way, int(n.replace(",", "")), int(k)) for op, way, n, k in said] == expected


def test_a_view_counts_both_kinds_and_algorithms_can_change(executed: Any) -> None:
    views = [each["text/plain"] for each in pictures(executed) if "text/plain" in each]
    (text,) = [view for view in views if view.startswith("distlab: loop, finished, 10 steps")]
    assert "all-reduce inside training_step: 10 times 65.5 kB" in text
    assert "reduce MEAN from Python: 10 times 4 B" in text
    count, times = times_the_value("HierarchicalCopyAllReduce", 8)
    assert text_of(executed, "change").splitlines() == [
        f"{count} collectives, {int(times * 4096):,} wire bytes for a value of 4,096 bytes",
        "right: True",
    ]
