"""Which sums in loops could be combined once after them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp

from distlab.devices.mesh import AXIS
from distlab.step.review.loops import repeated_sums

total = partial(jax.lax.psum, axis_name=AXIS)
ROWS: Final = jnp.ones((3, 4))


def added_up(w: Any) -> Any:
    return jax.lax.scan(lambda c, row: (c + total(w * row), None), jnp.zeros(4), ROWS)[0]


def added_up_in_a_while_loop(w: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda n, c: c + total(w * n), jnp.zeros(4))


def stacked(w: Any) -> Any:
    return jax.lax.scan(lambda c, row: (c, total(w * row)), 0, ROWS)[1]


def trained(w: Any) -> Any:
    return jax.lax.scan(lambda w, row: (w - total(w * row), None), w, ROWS)[0]


def solved(w: Any) -> Any:
    """Power iterations: each product is of what the sum before led to."""
    return jax.lax.while_loop(lambda v: v.max() < 9, lambda v: total(v * w) + 1, jnp.ones(4))


def until_they_agree(w: Any) -> Any:
    """The condition waits for each sum."""
    return jax.lax.while_loop(
        lambda c: c[1].max() < 9, lambda c: (c[0] + 1, total(w * c[0])), (0, w)
    )


def not_in_a_loop(w: Any) -> Any:
    return total(w) + total(total(w))


FOUND: Final[dict[Callable[[Any], Any], int]] = {
    added_up: 1,
    added_up_in_a_while_loop: 1,
    stacked: 1,
    trained: 0,
    solved: 0,
    until_they_agree: 0,
    not_in_a_loop: 0,
}


def test_sums_that_no_earlier_round_leads_to_are_found() -> None:
    for function in FOUND:
        jaxpr = jax.make_jaxpr(function, axis_env=[(AXIS, 2)])(jnp.ones(4))
        assert len(list(repeated_sums(jaxpr.jaxpr))) == FOUND[function]
