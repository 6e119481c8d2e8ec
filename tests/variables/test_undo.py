"""Assignments of a function that fails are undone, whatever interrupts it."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.variables.frames import Undo
from tests.patience import interrupt_at_second_call


def test_an_interrupt_during_undo_restores_all_values() -> None:
    variables = [dl.Variable(jnp.zeros(2)) for _ in range(3)]
    undo = Undo()
    for variable in variables:
        undo.set_copy(variable, 0, jnp.ones(2))
    assert [v.numpy().tolist() for v in variables] == [[1, 1]] * 3
    interrupt_at_second_call("array", undo.restore)
    assert [v.numpy().tolist() for v in variables] == [[0, 0]] * 3


def test_after_values_were_put_back_nothing_is_assigned() -> None:
    variable = dl.Variable(jnp.zeros(2))
    undo = Undo()
    undo.restore()
    with pytest.raises(SystemExit):
        undo.set_copy(variable, 0, jnp.ones(2))
    assert variable.numpy().tolist() == [0, 0]
