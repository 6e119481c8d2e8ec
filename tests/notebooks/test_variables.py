"""The notebook about variables: values and bytes are those that can be worked out by hand."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import distlab as dl
from distlab.events import Copy, Placement
from distlab.text.bytes import bytes_text
from tests.notebooks.executed import html_of, pictures, text_of

NAME = "03_where_variables_live"
MATRIX = 256 * 256 * 4
LARGE = 500 * 500 * 4
DEVICES = [f"CPU:{number}" for number in range(4)]


def lists_in(text: str) -> list[Any]:
    """All lists of numbers in a text."""
    return [ast.literal_eval(found) for found in re.findall(r"\[[-\d., ]+\]", text)]


def rows_in(html: str) -> list[list[str]]:
    """The texts of a table's rows, without its headings."""
    rows = re.findall(r"<tr>(.*?)</tr>", html)
    return [row for row in (re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows) if row]


def test_a_mirrored_variable_has_a_copy_on_each_device(executed: Any) -> None:
    rows = rows_in(html_of(executed, "mirrored"))
    assert [row[1:3] for row in rows] == [[device, "262 kB"] for device in DEVICES]
    lines = text_of(executed, "addresses").splitlines()
    assert all(f" {MATRIX:,} bytes at address 0x" in line for line in lines)
    assert len({line.split()[-1] for line in lines}) == 4
    said = text_of(executed, "outside")
    assert lists_in(said) == [[10.0] * 4, [15.0] * 4, [15.0, 15.0, 99.0, 15.0]]
    assert said.endswith("and v is 15.0\n")


def test_the_aggregation_says_what_becomes_of_several_values(executed: Any) -> None:
    found = re.findall(
        r"^(\w+) +copies (.*), v is (.*)$", text_of(executed, "inside"), re.MULTILINE
    )
    told = {name: (ast.literal_eval(copies), float(value)) for name, copies, value in found}
    assert told == {
        "NONE": ([1.0, 2.0, 3.0, 4.0], 1.0),
        "SUM": ([10.0] * 4, 10.0),
        "MEAN": ([2.5] * 4, 2.5),
        "ONLY_FIRST_REPLICA": ([1.0] * 4, 1.0),
    }
    assert lists_in(text_of(executed, "same")) == [[10.0] * 4]


def test_copies_that_count_alone_add_up_when_they_are_read(executed: Any) -> None:
    lines = text_of(executed, "on-read").splitlines()[:3]
    parts = [[4, 4, 4, 4], [8, 8, 8, 8], [10, 10, 9, 8]]
    assert lines == [f"{counts} make {sum(counts)}" for counts in parts]
    assert sum(parts[-1]) == 37
    shown = html_of(executed, "on-read")
    assert "each replica has its own" in shown
    assert [row[3] for row in rows_in(shown)] == ["10", "10", "9", "8"]
    said = text_of(executed, "on-read-assign")
    assert "[2.0, 2.0, 2.0, 2.0] make 8.0" in said
    assert "aggregation NONE, so read_value has no common value" in said


def test_central_storage_is_on_one_device_and_sent_in_each_step(
    executed: Any, folder: Path
) -> None:
    with dl.Run.open(folder / "runs" / "central") as run:
        copies = [event for event in run.events("copy") if isinstance(event, Copy)]
    assert [(copy.bytes, copy.copies) for copy in copies] == [(MATRIX, 4)] * 3
    said = text_of(executed, "central").splitlines()[:3]
    assert said == [f"{MATRIX:,} bytes between devices, 4 copies"] * 3
    ((_, device, size, numbers),) = rows_in(html_of(executed, "central"))
    assert (device, size, numbers) == ("CPU:0", "262 kB", "3, 3, 3, 3, …")


def test_the_view_shows_the_bytes_that_were_placed(executed: Any, folder: Path) -> None:
    at_once = {"mirrored": DEVICES, "central": DEVICES[:1], "served": DEVICES[2:3]}
    with dl.Run.open(folder / "runs" / "placed") as run:
        events = [event for event in run.events("placement") if isinstance(event, Placement)]
    placed = {event.name: event for event in events if event.name in at_once}
    assert {name: event.devices for name, event in placed.items()} == at_once
    assert {size for event in placed.values() for size in event.bytes_per_device} == {LARGE}
    for name, devices in at_once.items():
        line = f"{name} +{LARGE:,} bytes on each of {' '.join(devices)}"
        assert re.search(f"^{line}$", text_of(executed, "placed"), re.MULTILINE)
    held = dict.fromkeys([*DEVICES, "server 0", "server 1"], 0)
    for event in events:
        sign = 1 if event.action == "place" else -1
        for device, size in zip(event.devices, event.bytes_per_device, strict=True):
            held[device if event.server is None else f"server {event.server}"] += sign * size
    (picture,) = pictures(executed)
    shown = re.findall(r"^  (\w+[: ]\d) +([\d.]+ [kM]B)$", picture["text/plain"], re.MULTILINE)
    assert shown == [(home, bytes_text(size)) for home, size in held.items()]
    common = MATRIX + LARGE
    assert list(held.values()) == [2 * common, common, common, common, LARGE + 8_000, 8_000]
