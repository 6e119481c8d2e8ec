"""The programs in the guides run, each after the lines that its page leaves to the reader."""

from __future__ import annotations

import doctest
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PROGRAM = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINES = """
import distlab as dl
import jax, jax.numpy as jnp, numpy as np, optax

dl.use_cpu_devices(8)
strategy = dl.MirroredStrategy()
rows, labels = np.ones((128, 64), np.float32), np.zeros(128, np.int32)
dataset = dl.data.Dataset.from_tensor_slices((rows, labels)).batch(64)
dist_dataset = batches = strategy.experimental_distribute_dataset(dataset)
"""
BEFORE = {
    "advice.md": """
def train():
    for batch in batches:
        strategy.run(lambda x, y: x.sum(), args=batch)
""",
    "dashboard.md": """
epochs, step, recording = 2, lambda batch: batch[0].sum(), dl.record("runs/first").__enter__()
""",
    "flax.md": """
from flax import nnx
from flax.training.train_state import TrainState

GLOBAL_BATCH, rngs = 64, nnx.Rngs(0)
images = {"image": rows, "label": labels}
dataset = dl.data.Dataset.from_tensor_slices(images).batch(GLOBAL_BATCH)

class Model(nnx.Module):
    def __init__(self, *, rngs):
        self.layer = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        return self.layer(x)

self, params = Model(rngs=rngs), {"w": jnp.zeros((64, 10))}
state = TrainState.create(apply_fn=None, params=params, tx=optax.sgd(0.1))

def loss_fn(params, batch):
    losses = optax.softmax_cross_entropy_with_integer_labels(
        batch["image"] @ params["w"], batch["label"])
    return losses.sum() / GLOBAL_BATCH
""",
    "plain-jax.md": """
from jax.sharding import AbstractMesh, NamedSharding

def main():
    jax.block_until_ready(jax.jit(lambda x: x + 1)(jnp.ones(8)))

state = jnp.ones(8)
batch = jnp.ones(8)
step = lambda state, batch: (state, 0.0)
""",
    "saving.md": """
optimizer, steps, batches = optax.adam(0.1), 0, dataset
state, key, images = strategy.replicate(jnp.ones(3)), jax.random.key(0), rows
path = dl.train.Checkpoint(state=state, key=key, epoch=1).save("before")

def train_step(x, y):
    for variable in params.values():
        variable.assign_add(jnp.ones_like(variable.value()))
""",
}


@pytest.fixture
def sigterm() -> Iterator[None]:
    """Restores the handler of SIGTERM after a guide that sets one."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
@pytest.mark.usefixtures("sigterm")
@pytest.mark.parametrize("page", BEFORE)
def test_the_programs_of_a_guide_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(LINES + BEFORE[page], names)
    for program in PROGRAM.findall((DOCS / page).read_text()):
        if program.startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(program, {}, page, page, 0)
            flags = doctest.NORMALIZE_WHITESPACE
            assert doctest.DocTestRunner(verbose=False, optionflags=flags).run(example).failed == 0
        else:
            exec(compile(program, page, "exec"), names)


def test_the_right_column_of_coming_from_runs() -> None:
    (program,) = PROGRAM.findall((DOCS / "coming-from-tf-distribute.md").read_text())
    names: dict[str, Any] = {}
    exec("\n".join(line[55:] for line in program.splitlines()), names)
    assert float(names["loss"]) < 1
