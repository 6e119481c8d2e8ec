"""Advice names the step in which NaN or infinity begins, and the replica that had it first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.advice import Advice, advise
from distlab.events import Metric, NotFinite, Step
from tests.synthetic import START_NS, beginning, steps

REPLICAS, SIZE, STEPS = 4, 8, 20


def mirrored() -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n}" for n in range(REPLICAS)])


def examples(bad: Sequence[int] = (), value: float = np.nan) -> np.ndarray:
    """Examples of which those at `bad` are not finite; a replica has two of a batch of eight."""
    x = np.random.default_rng(3).normal(size=(STEPS * SIZE, 3)).astype(np.float32)
    x[list(bad)] = value
    return x


def advice(run: Path) -> list[Advice]:
    with dl.Run.open(run) as opened:
        return [one for one in opened.advice() if one.cause == "not_finite"]


def first_step(run: Path) -> int:
    with dl.Run.open(run) as opened:
        return next(e.step for e in opened.events("step") if isinstance(e, Step))


def trained(run: Path, x: np.ndarray, *, log: bool, combined: bool = False) -> None:
    """TensorFlow's custom loop: a loss of each replica, and gradients that are combined."""
    strategy = mirrored()
    with strategy.scope():
        kernel = dl.Variable(jnp.ones(3), name="kernel")

    def train_step(batch: Any) -> Any:
        reduce = dl.get_replica_context().all_reduce
        loss, grads = jax.value_and_grad(lambda w: jnp.mean((batch @ w) ** 2))(kernel.value())
        kernel.assign_sub(0.01 * reduce("MEAN", grads))
        return reduce("MEAN", loss) if combined else loss

    batches = dl.data.Dataset.from_tensor_slices(x).batch(SIZE)
    with dl.record(run) as recording:
        for batch in strategy.experimental_distribute_dataset(batches):
            loss = strategy.run(train_step, args=(batch,))
            value = float(strategy.reduce("MEAN", loss, axis=None))
            if log:
                recording.log(loss=value)


@pytest.mark.filterwarnings("ignore::distlab.errors.NotFiniteWarning")
def test_the_replica_whose_example_is_not_finite_is_named(tmp_path: Path) -> None:
    trained(tmp_path / "run", examples([11 * SIZE + 5]), log=True)
    (one,) = advice(tmp_path / "run")
    assert one.subject == "metric loss"
    first = first_step(tmp_path / "run")
    assert one.evidence["began_step"] == first + 11
    assert one.evidence["replica"] == 2
    assert one.text.endswith(f"returned at step {first + 11:,} on replica 2, and on no other.")
    assert f"Look at the examples of replica 2 in step {first + 11:,}." in one.remedy
    assert one.source.startswith("test_not_finite.py:")


def test_it_is_named_where_nothing_is_logged(tmp_path: Path) -> None:
    trained(tmp_path / "run", examples([3 * SIZE + 7], np.inf), log=False)
    (one,) = advice(tmp_path / "run")
    assert one.subject == "function train_step"
    assert one.evidence["replica"] == 3


def test_what_the_step_combines_is_told_of_all_replicas(tmp_path: Path) -> None:
    trained(tmp_path / "run", examples([3 * SIZE + 7]), log=False, combined=True)
    (one,) = advice(tmp_path / "run")
    assert "on all replicas at once" in one.text
    assert "replica" not in one.evidence


def of_function(run: Path, fn: Callable[[Any], Any], x: np.ndarray) -> None:
    strategy = mirrored()
    batches = dl.data.Dataset.from_tensor_slices(x).batch(SIZE)
    with dl.record(run):
        for batch in strategy.experimental_distribute_dataset(batches):
            jax.block_until_ready(strategy.run(fn, args=(batch,)))


def combined_mean(batch: Any) -> Any:
    return dl.get_replica_context().all_reduce("MEAN", jnp.mean(batch))


@pytest.mark.parametrize(("parts", "replica"), [([5], 2), ([1, 3, 5, 7], None)])
def test_arguments_of_a_later_step_name_the_replica(
    parts: Sequence[int], replica: int | None, tmp_path: Path
) -> None:
    x = np.ones((70 * SIZE, 3), np.float32)
    for part in parts:
        x[40 * SIZE + part :: SIZE] = -np.inf
    of_function(tmp_path / "run", combined_mean, x)
    (one,) = advice(tmp_path / "run")
    assert "on all replicas at once" in one.text
    assert one.evidence.get("replica") == replica
    assert ("Later, replica 2 had NaN or infinity in an argument, and no" in one.text) is (
        replica is not None
    )
    assert ("Look at the examples of replica 2 near step" in one.remedy) is (replica is not None)


NOT_TOLD: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "finite again": (jnp.mean, examples(range(4 * SIZE, 12 * SIZE, SIZE))),
    "a replica without examples": (jnp.mean, examples()[: 18 * SIZE + 2]),
    "a mask of minus infinity": (lambda x: jnp.where(x > 0, x, -jnp.inf), examples()),
}


@pytest.mark.parametrize("name", NOT_TOLD)
def test_what_is_not_finite_now_and_then_or_by_design_is_not(name: str, tmp_path: Path) -> None:
    of_function(tmp_path / "run", *NOT_TOLD[name])
    assert advice(tmp_path / "run") == []


def test_it_is_told_during_the_run_and_where_it_ends(tmp_path: Path) -> None:
    strategy = mirrored()
    bad = strategy.experimental_distribute_values_from_function(
        lambda context: jnp.float32(np.nan if context.replica_id_in_sync_group == 1 else 1)
    )
    good = strategy.replicate(jnp.float32(1))

    def double(x: Any) -> Any:
        return x * 2

    with dl.record(tmp_path / "run"):
        for number in range(160):
            values = bad if 30 <= number < 100 else good
            jax.block_until_ready(strategy.run(double, args=(values,)))
    with dl.Run.open(tmp_path / "run") as run:
        told = [event for event in run.events("not_finite") if isinstance(event, NotFinite)]
    first = first_step(tmp_path / "run")
    begin, end = told
    assert (begin.step - first, begin.replicas, begin.begun) == (30, [1], True)
    assert (end.step, end.replicas, end.steps) == (-1, [], 0)


@pytest.mark.filterwarnings("ignore::distlab.errors.NotFiniteWarning")
def test_metrics_that_begin_together_are_one_advice(tmp_path: Path) -> None:
    with dl.record(tmp_path / "run") as recording:
        for step in range(6):
            value = np.nan if step > 2 else 1.0
            recording.log(step=step, loss=value, norm=value, rate=0.1)
    (one,) = advice(tmp_path / "run")
    assert one.subject == "metric loss"
    assert one.text.startswith("loss is NaN or infinite from step 3 on, in 3 values, and so is")


@pytest.mark.filterwarnings("ignore::distlab.errors.NotFiniteWarning")
@pytest.mark.parametrize(("series", "told"), [("nnn1nnn", False), ("1nn1nnnnnnn", True)])
def test_nan_between_two_evaluations_stands_for_no_value(
    series: str, told: bool, tmp_path: Path
) -> None:
    strategy = mirrored()
    with dl.record(tmp_path / "run") as recording:
        for value in series:
            strategy.run(lambda: jnp.ones(()))
            recording.log(val=float("nan") if value == "n" else 1.0)
    assert [one.subject for one in advice(tmp_path / "run")] == ["metric val"] * told


def test_where_it_began_is_kept_in_long_runs() -> None:
    began = NotFinite(
        time_ns=0, strategy=0, function="train", source="train.py:3", step=2, last_step=9,
        steps=8, replicas=[1], begun=True,
    )  # fmt: skip
    events = [*beginning(2), *steps(3, replicas=2), began, *steps(6_000, replicas=2, first=3)]
    events += [
        Metric(time_ns=START_NS + number, step=number, values={"loss": float("nan")})
        for number in range(3, 6_000)
    ]
    (one,) = [one for one in advise(events) if one.cause == "not_finite"]
    assert one.evidence["replica"] == 1
