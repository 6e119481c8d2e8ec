"""Assignments of a function that fails are undone, whatever interrupts it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.variables.undo import Undo


def test_an_interrupt_while_values_are_put_back_leaves_all_of_them_as_they_were() -> None:
    variables = [dl.Variable(jnp.zeros(2)) for _ in range(3)]
    undo = Undo()
    for variable in variables:
        undo.set_copy(variable, 0, jnp.ones(2))
    assert [v.numpy().tolist() for v in variables] == [[1, 1]] * 3
    writes = 0

    def interrupt(frame: FrameType, event: str, _: Any) -> None:
        nonlocal writes
        writes += event == "call" and frame.f_code.co_name == "array"
        if writes == 2:
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            undo.restore()
    finally:
        sys.setprofile(before)
    assert [v.numpy().tolist() for v in variables] == [[0, 0]] * 3


def test_after_values_were_put_back_nothing_is_assigned() -> None:
    variable = dl.Variable(jnp.zeros(2))
    undo = Undo()
    undo.restore()
    with pytest.raises(SystemExit):
        undo.set_copy(variable, 0, jnp.ones(2))
    assert variable.numpy().tolist() == [0, 0]
