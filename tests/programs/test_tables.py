"""The collectives of seven programs on meshes, to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.programs import meshes

# kind, times, bytes of the operands, bytes sent, axes, shift, asked, purpose, names
_ALL = ["b1", "b2", "w1", "w2"]
_FORTH: tuple[Any, ...] = (
    "collective-permute",
    4,
    131_072,
    131_072,
    ["seq"],
    1,
    "program",
    "activations",
    [],
)
_BACK: tuple[Any, ...] = (*_FORTH[:5], -1, "program", "activations, backward", [])
TABLES: dict[Callable[[], meshes.Case], list[tuple[Any, ...]]] = {
    meshes.data_parallel: [
        ("all-reduce", 1, 559_172, 978_551, ["data"], None, "xla", "gradients", _ALL),
    ],
    meshes.tensor_parallel: [
        ("all-reduce", 1, 2_048, 2_048, ["model"], None, "xla", "activations", []),
        ("all-reduce", 1, 279_620, 419_430, ["data"], None, "xla", "gradients", _ALL),
    ],
    meshes.fsdp: [
        ("all-gather", 1, 8, 56, ["data"], None, "xla", "whole", ["b2"]),
        ("all-gather", 1, 256, 1_792, ["data"], None, "xla", "whole", ["b1"]),
        ("all-gather", 1, 1_024, 7_168, ["data"], None, "xla", "activations, backward", []),
        ("all-gather", 1, 4_096, 28_672, ["data"], None, "xla", "whole", ["w2"]),
        ("all-gather", 1, 65_536, 458_752, ["data"], None, "xla", "whole", ["w1"]),
        ("all-reduce", 1, 559_172, 978_551, ["data"], None, "xla", "gradients", _ALL),
        ("all-to-all", 1, 32_768, 28_672, ["data"], None, "xla", "activations, backward", []),
    ],
    meshes.fsdp_by_hand: [
        ("all-gather", 1, 256, 1_792, ["data"], None, "program", "whole", ["b1"]),
        ("all-gather", 1, 4_096, 28_672, ["data"], None, "program", "whole", ["w2"]),
        ("all-gather", 1, 65_536, 458_752, ["data"], None, "program", "whole", ["w1"]),
        ("all-reduce", 1, 68, 119, ["data"], None, "program", "gradients", ["b2"]),
        ("reduce-scatter", 1, 2_048, 1_792, ["data"], None, "program", "gradients", ["b1"]),
        ("reduce-scatter", 1, 32_768, 28_672, ["data"], None, "program", "gradients", ["w2"]),
        ("reduce-scatter", 1, 524_288, 458_752, ["data"], None, "program", "gradients", ["w1"]),
    ],
    meshes.ring_attention: [
        ("all-reduce", 1, 262_148, 262_148, ["data"], None, "xla", "gradients", [*"koqv"]),
        ("all-reduce", 1, 262_148, 393_222, ["seq"], None, "xla", "gradients", [*"koqv"]),
        *(_BACK, _BACK, _FORTH, _FORTH),
    ],
    meshes.pipeline: [
        ("all-reduce", 1, 32_768, 49_152, ["stage"], None, "program", "activations", []),
        ("all-reduce", 1, 32_768, 49_152, ["stage"], None, "program", "activations, backward", []),
        ("all-reduce", 1, 65_540, 65_540, ["data"], None, "xla", "gradients", ["weight"]),
        ("collective-permute", 11, 4_096, 4_096, ["stage"], -1, *_BACK[6:]),
        ("collective-permute", 11, 4_096, 4_096, ["stage"], 1, *_FORTH[6:]),
    ],
    meshes.expert_parallel: [
        ("all-reduce", 1, 2_052, 3_591, ["expert"], None, "xla", "gradients", ["gate"]),
        ("all-to-all", 1, 32_768, 28_672, ["expert"], None, "program", "activations", []),
        ("all-to-all", 1, 32_768, 28_672, ["expert"], None, "program", "activations", []),
        ("all-to-all", 1, 32_768, 28_672, ["expert"], None, "program", "activations, backward", []),
    ],
}
SENT = {
    meshes.data_parallel: {"data": 978_551},
    meshes.tensor_parallel: {"model": 2_048, "data": 419_430},
    meshes.fsdp: {"data": 1_503_663},
    meshes.fsdp_by_hand: {"data": 978_551},
    meshes.ring_attention: {"seq": 2_490_374, "data": 262_148},
    meshes.pipeline: {"stage": 188_416, "data": 65_540},
    meshes.expert_parallel: {"expert": 89_607},
}


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_collectives_of_a_program_are_those_of_its_idiom(make: Callable[[], meshes.Case]) -> None:
    found = meshes.reported(make)
    rows = [
        (
            one.kind,
            one.times_per_step,
            one.operand_bytes,
            one.wire_bytes,
            one.axes,
            one.shift,
            one.asked,
            one.purpose,
            one.names,
        )
        for one in found.collectives
    ]
    assert sorted(rows, key=str) == sorted(TABLES[make], key=str)
    assert found.by_axis() == SENT[make]
