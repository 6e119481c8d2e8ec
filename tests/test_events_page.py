"""docs/events.md says of every event exactly what its struct says, and nothing else."""

from __future__ import annotations

import inspect
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import jax
import msgspec

import distlab as dl
from distlab import events
from distlab.programs.collectives import KINDS as COLLECTIVES
from tests.listening import listening

PAGE = (Path(__file__).parent.parent / "docs" / "events.md").read_text()
SECTIONS = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
KINDS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in typing.get_args(events.AnyEvent)
}
PARTS: dict[str, type[msgspec.Struct]] = {
    part.__name__: part
    for part in (
        *(events.Device, events.Collective, events.ArrayPlace, events.ProgramShare, events.Doubt),
        *(events.ClosureSpan, events.WorkerClosures, events.ServerLink),
    )
}
STRUCTS = {**KINDS, **PARTS}
ROW = re.compile(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", re.MULTILINE)
QUOTED = re.compile(r'`"([^"`]+)"`')


def described(struct: type[Any]) -> tuple[str, dict[str, str]]:
    """Returns what a docstring says of a struct, and of each of its fields."""
    text, _, entries = (inspect.getdoc(struct) or "").partition("\nAttributes:\n")
    found = re.findall(r"^  (\w+): (.+(?:\n    .+)*)", entries, re.MULTILINE)
    return " ".join(text.split()), {name: " ".join(entry.split()) for name, entry in found}


def fields_of(struct: type[Any]) -> list[str]:
    return [field for field in struct.__struct_fields__ if field != "time_ns"]


def written(annotation: Any) -> str:
    """Returns a type as Python code writes it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin in (types.UnionType, typing.Union):
        return " | ".join(map(written, arguments))
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(written, arguments))}]"
    return "None" if annotation is type(None) else str(annotation.__name__)


def values_of(struct: type[Any], field: str) -> set[str]:
    """Returns the values of a field that its description quotes."""
    _, entries = described(struct)
    return set(QUOTED.findall(entries[field]))


def test_the_page_has_every_kind_and_the_schema_number() -> None:
    assert list(SECTIONS) == list(STRUCTS)
    assert f"This is schema {events.SCHEMA};" in PAGE


def test_sections_have_the_words_and_fields_of_the_structs() -> None:
    for name, struct in STRUCTS.items():
        text, entries = described(struct)
        types_of = typing.get_type_hints(struct)
        assert list(entries) == fields_of(struct), name
        begin = "A part of other events. " if name in PARTS else ""
        assert SECTIONS[name].split("\n\n")[0].strip() == begin + text
        rows = [
            (field, kind.replace("\\|", "|"), said)
            for field, kind, said in ROW.findall(SECTIONS[name])
        ]
        assert rows == [
            (field, written(types_of[field]), entries[field]) for field in fields_of(struct)
        ]


def test_fields_name_exactly_the_values_they_may_have() -> None:
    for name, struct in STRUCTS.items():
        for field, hint in typing.get_type_hints(struct).items():
            if typing.get_origin(hint) is Literal:
                assert values_of(struct, field) == set(typing.get_args(hint)), f"{name}.{field}"


def test_sections_have_occasion_cost_and_standing() -> None:
    for name, kind in KINDS.items():
        said = re.search(r"^Emitted .+\. Cost: .+?\.( Standing\.)?$", SECTIONS[name], re.MULTILINE)
        assert said is not None, name
        assert issubclass(kind, events.Event)
        assert bool(said.group(1)) == kind.STANDING, name


def test_reductions_have_the_verbs_and_algorithms_of_the_page() -> None:
    ways = [dl.ReductionToOneDevice(), dl.HierarchicalCopyAllReduce(), dl.NcclAllReduce()]

    def both(x: jax.Array) -> jax.Array:
        return dl.get_replica_context().all_reduce("SUM", x)

    with listening() as listener:
        for way in ways:
            strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=way)
            values = strategy.experimental_distribute_values_from_function(
                lambda _: jax.numpy.ones(3)
            )
            strategy.reduce("SUM", values, axis=None)
            strategy.reduce("MEAN", values, axis=None)
            strategy.gather(values, axis=0)
            strategy.run(both, args=(values,), options=dl.RunOptions(run_eagerly=True))
    found = listener.of(events.Reduction)
    for field in ("verb", "op", "algorithm"):
        said = {getattr(event, field) for event in found} - {""}
        assert said == values_of(events.Reduction, field)


def test_collectives_have_the_kinds_of_the_page() -> None:
    assert set(COLLECTIVES) == values_of(events.Collective, "kind")
