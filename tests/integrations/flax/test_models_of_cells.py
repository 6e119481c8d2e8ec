"""A model of Flax NNX that a notebook's cell makes again."""

from __future__ import annotations

import pytest
from flax import nnx

from tests.step.cells import in_a_notebook


def test_a_model_that_a_cell_makes_again_is_the_one_that_is_used() -> None:
    cells = {
        "model": "model = nnx.Linear(2, 1, rngs=nnx.Rngs(seed))\nseed += 1",
        "step": """
def step(x):
    traces.append(1)
    return model(x)
""",
        "run": "result = s.run(step, args=(jnp.ones(2),)).values[0]\nright = model(jnp.ones(2))",
    }
    names = in_a_notebook(cells, ["model", "step", "run", "run"], nnx=nnx, seed=0)
    assert len(names["traces"]) == 1
    before = names["result"]
    for cell in "model", "run":
        exec(cells[cell], names)
    assert names["result"] == pytest.approx(names["right"])
    assert names["result"] != before
