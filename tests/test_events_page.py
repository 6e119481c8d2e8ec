"""docs/events.md lists every event with exactly its fields."""

from __future__ import annotations

import re
import typing
from pathlib import Path

import msgspec
import pytest

from distlab import events

PAGE = (Path(__file__).parent.parent / "docs" / "events.md").read_text()
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
KINDS = {str(kind.__struct_config__.tag): kind for kind in typing.get_args(events.AnyEvent)}
PARTS = {part.__name__: part for part in (events.Device, events.Collective)}


def test_the_page_has_every_kind_and_no_other_and_the_schemas_number() -> None:
    assert list(SECTIONS) == [*KINDS, *PARTS]
    assert f"This is schema {events.SCHEMA};" in PAGE


@pytest.mark.parametrize("name", [*KINDS, *PARTS])
def test_a_section_has_exactly_the_fields_and_says_what_each_is(name: str) -> None:
    struct: type[msgspec.Struct] = {**KINDS, **PARTS}[name]
    rows = re.findall(r"^\| `(\w+)` \| `[^`]+` \| (.+) \|$", SECTIONS[name], re.MULTILINE)
    fields = [field for field in struct.__struct_fields__ if field != "time_ns"]
    assert [field for field, _ in rows] == fields
    assert all(len(text) > 5 for _, text in rows)


@pytest.mark.parametrize("name", KINDS)
def test_a_section_says_when_at_what_cost_and_whether_it_is_kept(name: str) -> None:
    said = re.search(r"^Emitted .+\. Cost: .+?\.( Standing\.)?$", SECTIONS[name], re.MULTILINE)
    assert said is not None
    assert bool(said.group(1)) == KINDS[name].STANDING
