"""Arrays that XLA gathers whole though each device needs a part, or the weights were meant.

The compiler inserts a gather where a value lies otherwise than an operation needs it. If each
device then slices it, the value only moved to another sharding: XLA's "involuntary full
rematerialization". If states are divided along the batch's axis and XLA gathers the batch in place
of the weights, the program is not FSDP: each device computes on all examples.
"""

from __future__ import annotations

from typing import Final

from distlab.advice._texts import at
from distlab.advice.meshes._programs import (
    advice_on,
    axes_of,
    divides_states,
    gathered,
    kept,
)
from distlab.events import Advice, Collective, Compile
from distlab.text.bytes import bytes_text
from distlab.text.units import line_in

SLICED: Final = "sliced_gather"
BATCH: Final = "gathered_batch"

_LEAST_BYTES: Final = 1 << 16
"""Bytes of a whole value: smaller gathers cost their latency alone."""

_LEAST_SHARE: Final = 0.1
"""The share of all bytes sent: of a small batch, activations are cheaper to gather than weights."""


def sliced(program: Compile) -> Advice | None:
    """Finds the largest value that is gathered whole and then sliced."""
    found = [one for one in gathered(program) if one.then_sliced >= _LEAST_BYTES]
    if not found:
        return None
    one = max(found, key=lambda one: one.then_sliced)
    line = line_in(one.source)
    return advice_on(
        program,
        SLICED,
        f"XLA gathers a value of {bytes_text(one.then_sliced)} along {_axes(one)}{at(line)}, of "
        f"which each device then uses only a slice: {program.function} asks for two shardings "
        "between which XLA knows no shorter way.",
        "Give the value one sharding where it is made, with jax.lax.with_sharding_constraint.",
        line,
        bytes=one.then_sliced,
        sent_bytes=one.wire_bytes or 0,
    )


def batch(program: Compile) -> Advice | None:
    """Finds examples or activations that are gathered along the axis that divides the states."""
    states = {one.name for one in kept(program)}
    divided = {
        axis
        for one in program.inputs
        if one.name not in states
        for axis in axes_of(one)
        if divides_states(program, axis)
    }
    found = [
        one
        for one in gathered(program)
        if divided & {*one.axes}
        and one.operand_bytes * one.group >= _LEAST_BYTES
        and not (one.purpose == "whole" and _are_states(one, states))
    ]
    if sum(map(_sent, found)) < _LEAST_SHARE * sum(map(_sent, program.collectives)) or not found:
        return None
    one = max(found, key=lambda one: one.operand_bytes * one.group)
    line, whole = line_in(one.source), one.operand_bytes * one.group
    what = ", ".join(one.names) or "activations"
    return advice_on(
        program,
        BATCH,
        f"XLA gathers {what} of all devices ({bytes_text(whole)}) along {_axes(one)}{at(line)}, "
        f"which divides the states of {program.function}: it is not FSDP, where weights alone are "
        "gathered.",
        "Constrain activations to the axis along the batch, with jax.lax.with_sharding_constraint.",
        line,
        bytes=whole,
        sent_bytes=one.wire_bytes or 0,
    )


def _sent(one: Collective) -> int:
    return (one.wire_bytes or 0) * (one.times_per_step or 1)


def _are_states(one: Collective, states: set[str]) -> bool:
    """Returns whether inputs of these short names, such as `w` of `params['w']`, are states."""
    return all(
        any(state == name or state.endswith((f"[{name!r}]", f".{name}")) for state in states)
        for name in (name.rpartition(".")[2] for name in one.names)
    )


def _axes(one: Collective) -> str:
    return " and ".join(one.axes) or "the mesh"
