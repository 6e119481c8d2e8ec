"""Programs of known content are read, and what is found is compared."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from distlab.events import Collective
from distlab.programs.collectives import Reader
from distlab.programs.contents import ProgramContents, read_program, read_programs
from distlab.programs.hlo_text import parse
from distlab.programs.places import Places

REPLICAS = 4
WIDTH = 6


def compiled(fn: Callable[..., Any], *locals_: Any) -> jax.stages.Compiled:
    """Compiles a replica function for replica values of such shapes."""
    mesh = Mesh(np.array(jax.devices()[:REPLICAS]), ("replica",))
    program = jax.jit(
        jax.shard_map(
            fn,
            mesh=mesh,
            in_specs=PartitionSpec("replica"),
            out_specs=PartitionSpec("replica"),
            check_vma=False,
        )
    )
    arguments = [
        jax.ShapeDtypeStruct((REPLICAS * x.shape[0], *x.shape[1:]), x.dtype) for x in locals_
    ]
    return program.lower(*arguments).compile()


def found(fn: Callable[..., Any], *locals_: Any) -> list[Collective]:
    return read_program(compiled(fn, *locals_)).collectives


def written(text: str) -> list[Collective]:
    module = parse(text)
    return Reader(module, Places(module)).collectives()


def psum(value: Any) -> Any:
    return lax.psum(value, "replica")


X = jnp.zeros((2, WIDTH))
BYTES = 2 * WIDTH * 4


def test_a_psum_is_an_all_reduce_over_all_replicas() -> None:
    (one,) = found(psum, X)
    assert one.kind == "all-reduce"
    assert one.operand_bytes == BYTES
    assert one.dtype == "f32"
    assert one.operands == 1
    assert one.participants == REPLICAS
    assert one.times_per_step == 1
    assert "psum" in one.source
    assert ".py:" in one.source


def test_a_program_without_collectives_has_none() -> None:
    assert found(lambda x: x * 2, X) == []


def test_scans_in_scans_multiply() -> None:
    def inner(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.sin(psum(c)), None), x, None, length=4)[0]

    def fn(x: Any) -> Any:
        return lax.scan(lambda c, _: (inner(c), None), x, None, length=3)[0]

    (one,) = found(fn, X)
    assert one.times_per_step == 12


def test_a_loop_that_ends_by_its_data_does_not_say_how_often() -> None:
    def fn(x: Any) -> Any:
        return lax.while_loop(lambda c: c[0, 0] < 9, lambda c: psum(c) + 1, x)

    (one,) = found(fn, X)
    assert one.times_per_step is None


def test_a_branch_does_not_say_whether_it_is_taken() -> None:
    def fn(x: Any) -> Any:
        return lax.cond(x[0, 0] > 0, lambda v: psum(jnp.sin(v)), lambda v: v, x)

    (one,) = found(fn, X)
    assert one.kind == "all-reduce"
    assert one.times_per_step is None


def test_combined_psums_are_one_operation_with_all_operands() -> None:
    def fn(x: Any, y: Any, z: Any) -> Any:
        return psum((x, y, z))

    all_of_them = found(fn, X, jnp.zeros((3,)), jnp.zeros((1, 5), jnp.int32))
    assert sum(one.operands for one in all_of_them) == 3
    assert sum(one.operand_bytes for one in all_of_them) == BYTES + 12 + 20
    assert {kind for one in all_of_them for kind in one.dtype.split("+")} == {"f32", "s32"}


@pytest.mark.parametrize(
    ("kind", "fn", "operand_bytes"),
    [
        ("all-gather", lambda x: lax.all_gather(x, "replica", tiled=True), BYTES),
        ("reduce-scatter", lambda x: lax.psum_scatter(x, "replica", tiled=True), BYTES * 2),
        (
            "collective-permute",
            lambda x: lax.ppermute(x, "replica", [(i, (i + 1) % 4) for i in range(4)]),
            BYTES,
        ),
        ("all-to-all", lambda x: lax.all_to_all(x, "replica", 0, 0, tiled=True), BYTES * 2),
    ],
)
def test_each_collective_is_known_by_its_kind(
    kind: str, fn: Callable[[Any], Any], operand_bytes: int
) -> None:
    rows = operand_bytes // (WIDTH * 4)
    (one,) = found(fn, jnp.zeros((rows, WIDTH)))
    assert one.kind == kind
    assert one.operand_bytes == operand_bytes
    assert one.participants == REPLICAS


@pytest.mark.parametrize(
    ("fn", "sent"),
    [
        # A ring of n sends 2 (n - 1) / n of the operand for a sum, and n - 1 parts for a gather.
        (psum, 2 * BYTES * 3 // 4),
        (lambda x: lax.all_gather(x, "replica", tiled=True), 3 * BYTES),
        (lambda x: lax.psum(x, "replica", axis_index_groups=[[0, 1], [2, 3]]), BYTES),
        (lambda x: lax.ppermute(x, "replica", [(0, 1), (1, 0), (2, 3), (3, 2)]), BYTES),
    ],
)
def test_the_wire_carries_what_a_ring_sends(fn: Callable[[Any], Any], sent: int) -> None:
    (one,) = found(fn, X)
    assert one.wire_bytes == sent


def test_combined_operands_name_their_own_lines() -> None:
    def fn(x: Any, y: Any) -> Any:
        first = psum(x)
        second = lax.psum(y, "replica")  # another line
        return first + 1, second * 2

    (one,) = found(fn, X, jnp.zeros((3,)))
    assert one.operands == 2
    by_shape = {value.split(" from ")[0]: value for value in one.values}
    assert set(by_shape) == {f"f32[2,{WIDTH}]", "f32[3]"}
    lines = {value.rsplit(":", 1)[1] for value in one.values}
    assert all(re.search(r"psum at \w+\.py:", value) for value in one.values)
    assert len(lines) == 2


def test_a_scattered_gradient_is_one_of_its_parameter() -> None:
    def step(part: Any, x: Any) -> Any:
        w = lax.all_gather(part, "replica", tiled=True)
        gradient = jax.grad(lambda w: jnp.sum((x @ w) ** 2))(w)
        return part - lax.psum_scatter(gradient, "replica", tiled=True)

    [gathered, scattered] = found(step, jnp.zeros((2, WIDTH)), jnp.zeros((3, 2 * REPLICAS)))
    assert (gathered.kind, gathered.purpose, gathered.names) == ("all-gather", "whole", ["part"])
    assert (scattered.kind, scattered.purpose) == ("reduce-scatter", "gradients")
    assert scattered.names == ["part"]


def test_costs_and_memory_are_those_of_one_device() -> None:
    size = 64
    contents = read_program(compiled(lambda x: x @ x, jnp.zeros((size, size))))
    assert contents.flops == pytest.approx(2 * size**3, rel=0.01)
    assert contents.argument_bytes == contents.output_bytes == size * size * 4
    assert contents.bytes_accessed is not None
    assert contents.bytes_accessed >= 2 * size * size * 4
    assert contents.temp_bytes is not None


def test_programs_of_one_step_have_the_collectives_of_all() -> None:
    several = read_programs([compiled(psum, X), compiled(lambda x: x * 2, X), compiled(psum, X)])
    assert [one.kind for one in several.collectives] == ["all-reduce"] * 2
    assert several.flops is several.temp_bytes is None


def test_a_program_that_tells_nothing_is_no_error() -> None:
    assert read_program(object()) == ProgramContents([], None, None, devices=1)


# What CPU devices do not write: asynchronous pairs, iota groups, older metadata.
ASYNCHRONOUS = """HloModule jit_f, is_scheduled=true, num_partitions=8, replica_count=1

%add (a: bf16[], b: bf16[]) -> bf16[] {
  %a = bf16[] parameter(0)
  %b = bf16[] parameter(1)
  ROOT %sum = bf16[] add(%a, %b)
}

%scatter (p: f32[8,4]) -> f32[1,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %rs = f32[1,4]{1,0} reduce-scatter(%p), replica_groups={}, dimensions={0}, to_apply=%add
}

ENTRY %main (x: bf16[4,2], y: f32[8,4]) -> f32[1,4] {
  %x = bf16[4,2]{1,0:T(8,128)(2,1)} parameter(0)
  %y = f32[8,4]{1,0} parameter(1)
  %c = s32[2]{0} constant({1, 2})
  %ars = bf16[4,2]{1,0} all-reduce-start(%x), replica_groups=[2,4]<=[8], to_apply=%add, metadata={op_name="jit(f)/a, \\"b\\" {c" source_file="/home/me/train.py" source_line=12}
  %ard = bf16[4,2]{1,0} all-reduce-done(%ars)
  %ags = (bf16[4,2]{1,0}, bf16[32,2]{1,0}) all-gather-start(%ard), dimensions={0}, replica_groups={{0,2},{1,3}}
  %agd = bf16[32,2]{1,0} all-gather-done(%ags)
  %async-start = ((f32[8,4]{1,0}), f32[1,4]{1,0}, u32[]) async-start(%y), calls=%scatter
  ROOT %async-done = f32[1,4]{1,0} async-done(%async-start), calls=%scatter
}
"""  # noqa: E501


def test_asynchronous_collectives_count_once() -> None:
    reduce, gather, scatter = written(ASYNCHRONOUS)
    assert (reduce.kind, reduce.operand_bytes, reduce.dtype) == ("all-reduce", 16, "bf16")
    assert reduce.participants == 8
    assert reduce.source.endswith("at train.py:12")
    assert (gather.kind, gather.operand_bytes, gather.participants) == ("all-gather", 16, 4)
    assert (scatter.kind, scatter.operand_bytes) == ("reduce-scatter", 128)
    assert (scatter.participants, scatter.times_per_step) == (8, 1)


# As TPUs write it: a gather in three computations of one chain, a sum that is scattered in a
# fusion, a small gather as a sum of parts and zeros, and a loop without its trip count.
TPU = """HloModule jit_step, num_partitions=8, replica_count=1

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%begin (p: f32[4,2]) -> f32[32,2] {
  %p = f32[4,2]{1,0:T(8,128)} parameter(0)
  ROOT %g.1 = f32[32,2]{1,0} all-gather(%p), channel_id=8, replica_groups=[1,8]<=[8], dimensions={0}, frontend_attributes={chain_id="3",is_spmd_generated="true"}
}

%middle (p: f32[4,2]) -> f32[32,2] {
  %p.2 = f32[4,2]{1,0} parameter(0)
  ROOT %g.2 = f32[32,2]{1,0} all-gather(%p.2), channel_id=8, replica_groups=[1,8]<=[8], dimensions={0}, frontend_attributes={chain_id="3",is_spmd_generated="true"}
}

%end (p: f32[4,2]) -> f32[32,2] {
  %p.3 = f32[4,2]{1,0} parameter(0)
  ROOT %g.3 = f32[32,2]{1,0} all-gather(%p.3), channel_id=8, replica_groups=[1,8]<=[8], dimensions={0}, frontend_attributes={chain_id="3",is_spmd_generated="true"}
}

%all-reduce-scatter (input: f32[8,4]) -> f32[1,4] {
  %input = f32[8,4]{1,0} parameter(0)
  %all-reduce.9 = f32[8,4]{1,0} all-reduce(%input), channel_id=13, replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
  %number = u32[] partition-id()
  %zero = u32[] constant(0)
  ROOT %cut = f32[1,4]{1,0} dynamic-slice(%all-reduce.9, %number, %zero), dynamic_slice_sizes={1,4}
}

%condition (c: (s32[], f32[4,2])) -> pred[] {
  %c = (s32[], f32[4,2]) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%c), index=0
  %most = s32[]{:T(128)} constant(5)
  ROOT %lt = pred[]{:T(512)} compare(%i, %most), direction=LT
}

%body (c: (s32[], f32[4,2])) -> (s32[], f32[4,2]) {
  %c.1 = (s32[], f32[4,2]) parameter(0)
  %i.1 = s32[] get-tuple-element(%c.1), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i.1, %one)
  %v = f32[4,2] get-tuple-element(%c.1), index=1
  %sent = f32[4,2] collective-permute(%v), source_target_pairs={{0,1},{1,0}}
  ROOT %both = (s32[], f32[4,2]) tuple(%next, %sent)
}

ENTRY %main (x: f32[4,2], y: f32[8,4], small: f32[2]) -> f32[1,4] {
  %x = f32[4,2]{1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="params[\'w\']"}
  %y = f32[8,4]{1,0} parameter(1)
  %small = f32[2]{0} parameter(2)
  %begun = f32[32,2]{1,0} fusion(%x), kind=kCustom, calls=%begin
  %continued = f32[32,2]{1,0} fusion(%x), kind=kCustom, calls=%middle
  %ended = f32[32,2]{1,0} fusion(%x), kind=kCustom, calls=%end
  %zeros = f32[16]{0} constant({...})
  %place = u32[] partition-id()
  %padded = f32[16]{0} dynamic-update-slice(%zeros, %small, %place)
  %whole = f32[16]{0} all-reduce(%padded), replica_groups=mesh['axis_0'=8] {'axis_0'}, to_apply=%add
  %start = s32[]{:T(128)} constant(0)
  %carry = (s32[], f32[4,2]) tuple(%start, %x)
  %loop = (s32[], f32[4,2]) while(%carry), condition=%condition, body=%body
  ROOT %scattered = f32[1,4]{1,0} fusion(%y), kind=kCustom, calls=%all-reduce-scatter, metadata={op_name="jit(step)/psum" source_file="/home/me/train.py" source_line=7}
}
"""  # noqa: E501


def test_collectives_of_a_tpu_are_what_they_do() -> None:
    gather, small, sent, scatter = written(TPU)
    assert (gather.kind, gather.times_per_step, gather.wire_bytes) == ("all-gather", 1, 224)
    assert (small.kind, small.operand_bytes, small.group) == ("all-reduce", 64, 8)
    assert (sent.kind, sent.times_per_step) == ("collective-permute", 5)
    assert (scatter.kind, scatter.operand_bytes, scatter.wire_bytes) == ("reduce-scatter", 128, 112)
    assert (scatter.asked, scatter.source) == ("program", "jit(step)/psum at train.py:7")
