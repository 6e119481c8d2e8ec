"""The effects of choices, compared with those of a real strategy."""

from __future__ import annotations

import logging
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError
from distlab.programs.contents import read_program
from distlab.strategies.what_if import ALGORITHMS, STRATEGIES, Choices, divide, move, place


def devices(count: int) -> list[str]:
    return [f"CPU:{number}" for number in range(count)]


def really_divided(choices: Choices) -> list[list[int]]:
    """Returns the sizes of a real strategy's batches."""
    strategy = dl.MirroredStrategy(devices(choices.replicas))
    dataset = dl.data.Dataset.range(choices.examples).batch(choices.batch)
    if choices.policy == "FROM FUNCTION":
        divided = strategy.distribute_datasets_from_function(lambda _: dataset)
    else:
        options = dl.data.Options()
        options.experimental_distribute.auto_shard_policy = dl.data.AutoShardPolicy[choices.policy]
        divided = strategy.experimental_distribute_dataset(dataset.with_options(options))
    return [[len(part) for part in strategy.experimental_local_results(one)] for one in divided]


def test_batches_are_divided_as_a_strategy_does() -> None:
    for policy in ["AUTO", "DATA", "OFF", "FROM FUNCTION"]:
        for examples, batch, replicas in [(29, 5, 8), (7, 7, 3), (64, 16, 4)]:
            choices = Choices(examples=examples, batch=batch, replicas=replicas, policy=policy)
            assert divide(choices).sizes == really_divided(choices)


def test_more_replicas_than_devices_can_be_explored() -> None:
    assert len(jax.devices()) < 16
    choices = Choices(replicas=16, examples=100, batch=50)
    assert divide(choices).sizes == [[4] * 12 + [2, 0, 0, 0]] * 2
    assert place(choices) == [784 * 128 * 4] * 16


def test_two_workers_share_examples_by_data_and_not_when_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workers = Choices(strategy="MultiWorkerMirroredStrategy", replicas=4, examples=16, batch=8)
    with caplog.at_level(logging.WARNING):
        assert sum(map(sum, divide(workers).sizes)) == 16
        off = Choices(**(vars(workers) | {"policy": "OFF"}))
        assert sum(map(sum, divide(off).sizes)) == 32
    assert caplog.text == ""


def make(name: str) -> Any:
    if name == "OneDeviceStrategy":
        return dl.OneDeviceStrategy("CPU:0")
    if name == "CentralStorageStrategy":
        return dl.experimental.CentralStorageStrategy(devices(4))
    return dl.MirroredStrategy(devices(4))


@pytest.mark.parametrize("name", STRATEGIES)
def test_variables_are_placed_as_a_strategy_does(name: str) -> None:
    strategy = make(name)
    replicas = strategy.num_replicas_in_sync
    with strategy.scope():
        variable = dl.Variable(jnp.zeros((6, 5)), name="w")
    really = {str(copy.device): copy.nbytes for copy in variable.storage.copies().values()}
    choices = Choices(strategy=name, replicas=4, shape=(6, 5)).checked()
    assert choices.replicas == replicas
    assert [size for size in place(choices) if size] == list(really.values())


@pytest.mark.parametrize("ops", ALGORITHMS, ids=repr)
def test_algorithms_move_what_their_compiled_program_moves(ops: dl.CrossDeviceOps) -> None:
    choices = Choices(replicas=8, shape=(64, 10))
    strategy = dl.MirroredStrategy(devices(8), cross_device_ops=ops)
    mesh = strategy.mesh

    def summed(rows: jax.Array) -> jax.Array:
        (total,) = ops.sum_in_program([rows[0]], 8)
        return total[None]

    spread = jax.jit(
        jax.shard_map(
            summed, mesh=mesh.mesh, in_specs=mesh.split.spec, out_specs=mesh.split.spec,
            check_vma=False,
        )
    )  # fmt: skip
    compiled = spread.lower(jax.ShapeDtypeStruct((8, 64, 10), jnp.float32)).compile()
    found = read_program(compiled).collectives
    (movement,) = [one for one in move(choices) if one.algorithm == type(ops).__name__]
    assert sum(movement.messages.values()) == len(found)
    assert set(movement.messages) == {one.kind for one in found}
    assert {one.operand_bytes for one in found} == {choices.bytes}


def test_choices_that_can_not_be_are_named() -> None:
    for choices, message in [
        (Choices(replicas=17), "replicas must be a whole number from 1 to 16, got 17"),
        (Choices(batch=0), "batch must be a whole number from 1 to 2000, got 0"),
        (Choices(examples="many"), "examples must be a whole number"),  # type: ignore[arg-type]
        (Choices(policy="FILE"), "policy must be one of AUTO, DATA, OFF, FROM FUNCTION"),
        (Choices(strategy="Mirrored"), "strategy must be one of MirroredStrategy, "),
        (Choices(dtype="complex"), "dtype must be one of float32"),
        (Choices(shape=(-1,)), "shape must be whole numbers"),
        (Choices(shape=(1 << 30, 1 << 30)), "below 1 TB"),
        (Choices(strategy="MultiWorkerMirroredStrategy", replicas=3), "Choose 4."),
    ]:
        with pytest.raises(ArgumentValueError) as caught:
            choices.checked()
        assert message in str(caught.value)
