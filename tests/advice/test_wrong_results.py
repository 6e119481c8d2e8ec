"""Advice names what makes a run compute something else than it should, and no near-twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.advice import WRONG as CAUSES
from distlab.advice import Advice, advise
from distlab.events import CopiesCompared, Error, Step
from distlab.recording import RingRecorder
from tests.advice.lines import code_at
from tests.advice.wrong_programs import RIGHT, WRONG, Made, looked_up, mirrored

DRIFTING = ("never reduced",)
TOGETHER = ("metrics", "merge_call")


def told(program: Made, recorder: RingRecorder) -> list[Advice]:
    program()
    assert not [e for e in recorder.ring.since(0).events if isinstance(e, Error)]
    return [one for one in advise(recorder.ring) if one.cause in CAUSES]


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named_once_with_its_line(name: str, recorder: RingRecorder) -> None:
    program, cause, subject = WRONG[name]
    found = told(program, recorder)
    assert [one.cause for one in found] == [cause]
    assert found[0].subject.startswith(subject)
    file, _, line = found[0].source.partition(":")
    assert file == "wrong_programs.py"
    lines = (Path(__file__).parent / file).read_text().splitlines()
    assert lines[int(line) - 1].strip()


@pytest.mark.parametrize("name", RIGHT)
def test_a_near_twin_that_is_right_gets_no_advice(name: str, recorder: RingRecorder) -> None:
    assert [(one.cause, one.subject) for one in told(RIGHT[name], recorder)] == []


@pytest.fixture
def eagerly() -> Iterator[None]:
    dl.run_functions_eagerly(True)
    yield
    dl.run_functions_eagerly(False)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRIFTING)
@pytest.mark.usefixtures("eagerly")
def test_copies_drifting_in_eager_steps_are_named_with_a_line(
    name: str, recorder: RingRecorder
) -> None:
    program, cause, subject = WRONG[name]
    (one,) = told(program, recorder)
    assert (one.cause, one.subject) == (cause, subject)
    written = f"{subject.removeprefix('variable ').removesuffix('_mean')}.assign"
    assert written in code_at(one.source)
    steps = [e.step for e in recorder.ring.since(0).events if isinstance(e, Step)]
    assert one.evidence["first_step"] == steps[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.usefixtures("eagerly")
def test_copies_that_eager_steps_bring_together_get_no_advice(
    name: str, recorder: RingRecorder
) -> None:
    assert [one.subject for one in told(RIGHT[name], recorder)] == []


def test_copies_are_compared_only_where_updated_alone(recorder: RingRecorder) -> None:
    RIGHT["averaged"]()
    assert not [e for e in recorder.ring.since(0).events if isinstance(e, CopiesCompared)]
    WRONG["never reduced"][0]()
    compared = [e for e in recorder.ring.since(0).events if isinstance(e, CopiesCompared)]
    first = compared[0].step
    kernels = [e.step - first for e in compared if e.subject == "variable kernel"]
    assert kernels == [0, 1, 3]
    assert all(event.differing == [1] for event in compared)


def test_the_difference_that_is_told_is_that_of_the_copies(recorder: RingRecorder) -> None:
    (one,) = told(WRONG["never reduced"][0], recorder)
    assert 0 < one.evidence["largest_difference_share"] < 10
    assert one.evidence["states"] == 2
    assert one.evidence["first_step"] == one.steps[0]


def test_a_gradient_with_few_used_rows_is_named_with_its_size(
    recorder: RingRecorder,
) -> None:
    looked_up(mirrored(4), 20_000, whole=True)
    (one,) = [one for one in advise(recorder.ring) if one.cause == "sparse_gradient"]
    assert one.subject == "table"
    assert "train_step combines the whole gradient of table, 1.28 MB, across" in one.text
    assert one.evidence == {"used_rows": 2, "rows": 20_000, "bytes": 20_000 * 16 * 4, "steps": 8}


@pytest.mark.parametrize(("rows", "whole"), [(20_000, False), (2_000, True)])
def test_few_rows_or_small_tables_are_not(rows: int, whole: bool, recorder: RingRecorder) -> None:
    looked_up(mirrored(2), rows, whole=whole)
    assert [one for one in advise(recorder.ring) if one.cause == "sparse_gradient"] == []


def test_means_of_unequal_parts_are_named_in_functional_states(
    recorder: RingRecorder,
) -> None:
    """The last batch of each epoch, 17 of 28 examples, is 5, 5, 5 and 2 on the replicas."""
    strategy = mirrored(4)
    rows = np.random.default_rng(0).normal(size=(3 * 28 + 17, 6)).astype(np.float32)
    batches = strategy.experimental_distribute_dataset(
        dl.data.Dataset.from_tensor_slices(rows).batch(28)
    )

    def step(state: Any, x: Any) -> Any:
        gradient = jax.grad(lambda w: jnp.mean(jnp.square(x @ w - 1)))(state["w"])
        gradient = dl.get_replica_context().all_reduce("MEAN", gradient)
        momentum = 0.9 * state["momentum"] + gradient
        return {"w": state["w"] - 0.01 * momentum, "momentum": momentum}

    state = strategy.replicate({"w": jnp.zeros((6, 3)), "momentum": jnp.zeros((6, 3))})
    for _ in range(10):
        for x in batches:
            state = strategy.run(step, args=(state, x))
    (one,) = [one for one in advise(recorder.ring) if one.cause == "mean_of_unequal_means"]
    assert one.evidence["times"] == 2.5
    assert one.evidence["share"] == 0.25


def test_an_ensemble_on_equal_examples_gets_no_advice(recorder: RingRecorder) -> None:
    strategy = mirrored(2)
    rows = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    batches = strategy.distribute_datasets_from_function(
        lambda _: dl.data.Dataset.from_tensor_slices(rows).batch(8),
        dl.InputOptions(experimental_replication_mode=dl.InputReplicationMode.PER_REPLICA),
    )
    member = strategy.experimental_distribute_values_from_function(
        lambda context: np.full((6, 3), context.replica_id_in_sync_group, np.float32)
    )

    def step(w: Any, x: Any, *, together: bool) -> Any:
        gradient = jax.grad(lambda w: jnp.mean(jnp.square(x @ w - 1)))(w)
        if together:
            gradient = dl.get_replica_context().all_reduce("MEAN", gradient)
        return w - 0.01 * gradient

    for together in (False, True):
        begun = recorder.ring.end
        for x in batches:
            member = strategy.run(step, args=(member, x), kwargs={"together": together})
        found = [one.cause for one in advise(recorder.ring, begun if together else 0)]
        assert ("same_examples" in found) == together


@pytest.mark.parametrize("combined", [False, True], ids=["alone", "combined"])
@pytest.mark.parametrize("placed", [False, True], ids=["array", "placed"])
def test_a_state_that_began_as_one_array_drifts_alike(
    recorder: RingRecorder, placed: bool, combined: bool
) -> None:
    strategy = mirrored(2)
    rows = np.random.default_rng(0).normal(size=(96, 6)).astype(np.float32)
    batches = strategy.experimental_distribute_dataset(
        dl.data.Dataset.from_tensor_slices(rows).batch(8)
    )

    def step(state: Any, x: Any) -> Any:
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.square(x @ w - 1)))(state["w"])
        if combined:
            gradient = dl.get_replica_context().all_reduce("MEAN", gradient)
        return {"w": state["w"] - 0.01 * gradient, "seen": state["seen"] + len(x)}, loss

    state: Any = {"w": jnp.zeros((6, 3)), "seen": jnp.zeros(())}
    if placed:
        mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
        state = jax.device_put(state, jax.NamedSharding(mesh, jax.P()))
    for x in batches:
        state, _ = strategy.run(step, args=(state, x))
    found = [(one.cause, one.subject) for one in advise(recorder.ring)]
    assert found == ([] if combined else [("drifting_copies", "state['w']")])
