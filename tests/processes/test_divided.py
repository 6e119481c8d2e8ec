"""Variables whose parts lie on the devices of several workers: losses, reads, kills, restarts."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from tests.processes.cluster import Outcome, run_workers

STEPS: Final = 6
KILLED_AFTER: Final = 3
_RNG: Final = np.random.default_rng(1)
X: Final = _RNG.normal(size=(24 * STEPS - 4, 16)).astype(np.float32)  # the last step is ragged
Y: Final = _RNG.normal(size=(24 * STEPS - 4, 8)).astype(np.float32)


class Training:
    """A perceptron with Adam by hand."""

    def __init__(self, strategy: dl.Strategy) -> None:
        self.strategy = strategy
        shapes = [(16, 32), (32,), (32, 8)]
        rng = np.random.default_rng(0)
        starts = [rng.normal(size=shape).astype(np.float32) / 3 for shape in shapes]
        with strategy.scope():
            self.weights = [dl.Variable(start) for start in starts]
            self.means = [dl.Variable(np.zeros_like(start)) for start in starts]
            self.squares = [dl.Variable(np.zeros_like(start)) for start in starts]
            self.count = dl.Variable(0.0)
        options = dl.data.Options()
        options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy.DATA
        dataset = dl.data.Dataset.from_tensor_slices((X, Y)).batch(24).with_options(options)
        self.data = iter(strategy.experimental_distribute_dataset(dataset))
        self.state = dl.train.Checkpoint(
            w=self.weights, m=self.means, v=self.squares, n=self.count, data=self.data
        )

    def step(self, x: jax.Array, y: jax.Array) -> jax.Array:
        def loss_of(weights: Sequence[jax.Array]) -> jax.Array:
            errors = (jnp.tanh(x @ weights[0] + weights[1]) @ weights[2] - y) ** 2
            return dl.nn.compute_average_loss(errors.sum(-1), global_batch_size=24)

        loss, gradients = jax.value_and_grad(loss_of)([w.value() for w in self.weights])
        gradients = dl.get_replica_context().all_reduce("SUM", gradients)
        n = self.count.assign_add(1.0).value()
        for w, m, v, g in zip(self.weights, self.means, self.squares, gradients, strict=True):
            m.assign(0.9 * m.value() + 0.1 * g)
            v.assign(0.999 * v.value() + 0.001 * g * g)
            size = jnp.sqrt(v.value() / (1 - 0.999**n)) + 1e-8
            w.assign_sub(0.01 * m.value() / (1 - 0.9**n) / size)
        return loss

    def losses(self) -> list[float]:
        run, reduce = self.strategy.run, self.strategy.reduce
        return [float(reduce("SUM", run(self.step, args=b), axis=None)) for b in self.data]


WORKERS: Final = """
import copy, os, signal, time
import numpy as np
import distlab as dl
from tests.processes.test_divided import KILLED_AFTER, Training

def strategy_of(**options):
    return dl.MultiWorkerMirroredStrategy(devices_per_worker=4, **options)

def divided():
    return strategy_of(shard_variables=32)
"""

TRAIN: Final = (
    WORKERS
    + """
os.chdir(FOLDER)
show("mirrored", Training(strategy_of()).losses())
training = Training(divided())
w = training.weights[0]
show("layouts", sorted({one.storage.layout.name for one in training.weights}))
show("parts", [list(part.data.shape) for part in w.storage.array.addressable_shards])
show("text", repr(w))
first = w.numpy()
show("reads", [float(np.sum(x)) for x in (w, w.value(), w + 0, w.values[1], copy.deepcopy(w))])
w.assign(2 * w.value())
w.assign_add(first)
show("assigned", bool((w.numpy() == 3 * first).all()))
path = training.state.write("whole")
w.assign(0 * first)
training.state.read(path)
show("restored", bool((w.numpy() == 3 * first).all()))

def halve():
    w.assign_sub(dl.get_replica_context().all_reduce("MEAN", w.value()) / 2)
    return w.value()[0, 0]

dl.run_functions_eagerly(True)
halved = training.strategy.run(halve).values
dl.run_functions_eagerly(False)
close = np.allclose(w.numpy(), 1.5 * first, rtol=1e-5)
show("eager", bool(close) and float(halved[0]) == float(w.numpy()[0, 0]))
w.assign(first)

with dl.BackupAndRestore(training.state, "backup", enable_async=True) as backup:
    losses = []
    try:
        for batch in training.data:
            total = training.strategy.run(training.step, args=batch)
            losses.append(float(training.strategy.reduce("SUM", total, axis=None)))
            backup.step()
            if RANK == 1 and len(losses) == KILLED_AFTER:
                training.state.sync()
                os.kill(os.getpid(), signal.SIGKILL)
    except dl.errors.WorkerError as error:
        show("losses", losses)
        show("lost", error.worker)
        try:
            w.numpy()
        except dl.errors.WorkerError as error:
            show("read after", error.worker)
        raise
"""
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("divided")


@pytest.fixture(scope="module")
def trained(folder: Path) -> list[Outcome]:
    return run_workers(f"FOLDER = {str(folder)!r}\n{TRAIN}", workers=2)


def test_each_worker_has_parts_and_reads_wholes(trained: list[Outcome]) -> None:
    total = float(np.sum(np.random.default_rng(0).normal(size=(16, 32)).astype(np.float32) / 3))
    for outcome in trained:
        assert outcome.shown["layouts"] == ["divided"]
        assert outcome.shown["parts"] == [[2, 32]] * 4
        assert outcome.shown["text"].endswith("float32[16, 32], divided>")
        assert outcome.shown["reads"] == pytest.approx([total] * 5, rel=1e-5)
        assert [outcome.shown[name] for name in ("assigned", "restored", "eager")] == [True] * 3


def test_a_killed_worker_is_named_and_three_mirrored_go_on(
    trained: list[Outcome], folder: Path
) -> None:
    left, killed = trained
    assert killed.code == -signal.SIGKILL
    assert (left.shown["lost"], left.shown["read after"]) == ("worker 1", "worker 1")
    expected = left.shown["mirrored"]
    assert left.shown["losses"] == pytest.approx(expected[:KILLED_AFTER], rel=1e-5)
    training = Training(dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"]))
    with dl.BackupAndRestore(training.state, folder / "backup"):
        assert float(training.count) == KILLED_AFTER
        assert training.losses() == pytest.approx(expected[KILLED_AFTER:], rel=1e-5)


def test_a_read_by_one_worker_alone_ends_with_an_error() -> None:
    chief, other = run_workers(
        WORKERS
        + """
strategy, rows = divided(), np.ones((16, 32), "float32")
with strategy.scope():
    w = dl.Variable(rows)
try:
    while True:
        strategy.run(lambda: w.assign_add(rows))
        if RANK == 0:
            w.numpy()
except dl.errors.WorkerError as error:
    show("error", str(error))
""",
        workers=2,
    )
    for outcome in (chief, other):
        assert "worker 1" in outcome.shown["error"]
