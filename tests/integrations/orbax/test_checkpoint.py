"""Checkpoints: each kind of value, under every number of replicas."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import distlab as dl
from distlab.errors import ArgumentTypeError, CheckpointMismatchError
from distlab.integrations.orbax.kinds import copies_of_total
from tests.integrations.orbax.saving import (
    NONE,
    ON_READ,
    SUM,
    add_replica_numbers,
    numbers_of,
    strategy_of,
    variables_of,
)


def test_variables_keep_their_value_over_8_3_1_0_and_8_replicas(tmp_path: Path) -> None:
    strategy = strategy_of(8)
    variables = variables_of(strategy)
    add_replica_numbers(strategy, variables)
    saved = numbers_of(variables)
    assert saved == {
        "sum": 36.0,
        "int_sum": 36,
        "mean": 4.5,
        "first": 1.0,
        "mirrored": [0.5, 0.5, 0.5],
        "bfloat16": [0.5, 0.5],
        "empty": [],
    }
    path = dl.train.Checkpoint(v=variables).save(tmp_path / "ckpt")
    for replicas in (3, 0, 8):
        variables = variables_of(strategy_of(replicas))
        checkpoint = dl.train.Checkpoint(v=variables)
        checkpoint.restore(path).assert_consumed()
        assert numbers_of(variables) == saved, replicas
        path = checkpoint.save(tmp_path / "ckpt")
    assert path == str(tmp_path / "ckpt-4")


def test_integer_totals_lose_nothing(tmp_path: Path) -> None:
    """TensorFlow restores 10 on 4 replicas as 2, 2, 2, 2."""
    path = dl.train.Checkpoint(n=dl.Variable(10)).save(tmp_path / "ckpt")
    with strategy_of(4).scope():
        total = dl.Variable(0, synchronization=ON_READ, aggregation=SUM)
    dl.train.Checkpoint(n=total).restore(path)
    assert [int(copy) for copy in total.values] == [4, 2, 2, 2]


@settings(deadline=None, max_examples=15)
@given(
    total=st.one_of(
        st.integers(-(2**31), 2**31 - 1).map(np.int32),
        st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(
            np.float32
        ),
    ),
    replicas=st.integers(1, 8),
)
def test_the_copies_of_any_total_add_up_to_it(total: Any, replicas: int) -> None:
    copies = copies_of_total(np.asarray(total), replicas)
    assert copies.dtype == total.dtype
    assert np.asarray(jnp.sum(jnp.asarray(copies), axis=0)) == total


def test_copies_without_a_common_value_need_as_many_replicas(tmp_path: Path) -> None:
    def make(replicas: int) -> tuple[dl.Strategy, dl.Variable]:
        strategy = strategy_of(replicas)
        with strategy.scope():
            return strategy, dl.Variable(0.0, synchronization=ON_READ, aggregation=NONE)

    strategy, own = make(3)
    strategy.run(
        lambda: own.assign(dl.get_replica_context().replica_id_in_sync_group.astype(jnp.float32))
    )
    path = dl.train.Checkpoint(own=own).save(tmp_path / "ckpt")
    _, same = make(3)
    dl.train.Checkpoint(own=same).restore(path)
    assert [float(copy) for copy in same.values] == [0.0, 1.0, 2.0]
    with pytest.raises(CheckpointMismatchError, match="of which 3 were saved and there are 2 now"):
        dl.train.Checkpoint(own=make(2)[1]).restore(path)


def test_a_replicated_state_is_stored_once_and_restored(tmp_path: Path) -> None:
    optimizer = optax.adam(0.1)
    params = {"w": jnp.arange(4.0), "b": jnp.ones(())}
    state = (params, optimizer.init(params))
    path = dl.train.Checkpoint(state=strategy_of(8).replicate(state)).save(tmp_path / "ckpt")
    assert ("state/0/w", [4]) in dl.train.list_variables(path)
    empty = jax.tree.map(jnp.zeros_like, state)
    for replicas in (3, 8, 0):
        strategy = strategy_of(replicas)
        checkpoint = dl.train.Checkpoint(state=strategy.replicate(empty) if replicas else empty)
        before: Any = jax.tree.structure(checkpoint.state)
        checkpoint.restore(path).assert_consumed()
        assert jax.tree.structure(checkpoint.state) == before
        restored = strategy.experimental_local_results(checkpoint.state[0]["w"])
        assert [np.asarray(w).tolist() for w in restored] == [[0, 1, 2, 3]] * max(replicas, 1)


def test_per_replica_values_that_differ_need_as_many_replicas(tmp_path: Path) -> None:
    def ids(replicas: int) -> Any:
        return strategy_of(replicas).run(
            lambda: dl.get_replica_context().replica_id_in_sync_group * 2
        )

    path = dl.train.Checkpoint(x=ids(3)).save(tmp_path / "ckpt")
    checkpoint = dl.train.Checkpoint(x=jax.tree.map(lambda x: x * 0, ids(3)))
    checkpoint.restore(path)
    assert [int(x) for x in checkpoint.x.values] == [0, 2, 4]
    with pytest.raises(CheckpointMismatchError, match="x has a value of its own on each replica"):
        dl.train.Checkpoint(x=ids(2)).restore(path)


def test_a_partial_batch_and_a_mirrored_value_come_back(tmp_path: Path) -> None:
    strategy = strategy_of(2)
    batches = strategy.experimental_distribute_dataset(dl.data.Dataset.range(3).batch(3))
    (batch,) = list(batches)
    rate = dl.Mirrored(jax.device_put(0.5, strategy.mesh.whole))
    path = dl.train.Checkpoint(batch=batch, rate=rate).save(tmp_path / "ckpt")
    zero = dl.Mirrored(jax.device_put(0.0, strategy_of(3).mesh.whole))
    checkpoint = dl.train.Checkpoint(batch=batch, rate=zero)
    checkpoint.restore(path)
    assert [x.tolist() for x in checkpoint.batch.values] == [[0, 1], [2]]
    assert [float(x) for x in checkpoint.rate.values] == [0.5, 0.5, 0.5]


class Point(NamedTuple):
    x: Any
    y: Any


def test_nests_numbers_strings_keys_and_generators_come_back(tmp_path: Path) -> None:
    def make(fill: int) -> dict[str, Any]:
        return {
            "step": fill,
            "rate": fill / 2,
            "done": bool(fill),
            "name": f"run {fill}",
            "nothing": None,
            "nest": [Point(jnp.full(2, fill), {"a": np.full(2, fill, np.int8)}), (fill,)],
            "complex": np.complex64(fill * 1j),
            "key": jax.random.key(fill),
            "keys": jax.random.split(jax.random.key(fill, impl="rbg"), 2),
            "generator": np.random.default_rng(fill),
        }

    saved = make(3)
    saved["generator"].random(5)
    path = dl.train.Checkpoint(**saved).write(tmp_path / "all")
    checkpoint = dl.train.Checkpoint(**make(0))
    checkpoint.read(path).assert_consumed()
    assert (checkpoint.step, checkpoint.rate, checkpoint.done) == (3, 1.5, True)
    assert checkpoint.name == "run 3"
    assert checkpoint.nothing is None
    point, (number,) = checkpoint.nest
    assert (type(point), point.x.tolist(), number) == (Point, [3, 3], 3)
    assert point.y["a"].dtype == np.int8
    assert checkpoint.complex == 3j
    assert jax.random.bits(checkpoint.key) == jax.random.bits(saved["key"])
    assert checkpoint.keys.dtype == saved["keys"].dtype
    assert checkpoint.generator.random() == saved["generator"].random()


class Layer:
    """A model in the manner of tf.Module: attributes that are variables or hold some."""

    def __init__(self, units: int, fill: float) -> None:
        self.units = units
        self.kernel = dl.Variable(jnp.full(units, fill))
        self.slots = [{"m": dl.Variable(fill)}]
        self.average = jnp.full(2, fill)
        self.whole = SimpleNamespace(part=self)


def test_objects_are_restored_in_place_and_keep_their_settings(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(model=Layer(2, 3.0)).save(tmp_path / "ckpt")
    assert [name for name, _ in dl.train.list_variables(path)] == [
        *("model/average", "model/kernel", "model/slots/0/m")
    ]
    model = Layer(2, 0.0)
    kernel = model.kernel
    dl.train.Checkpoint(model=model).restore(path).assert_consumed()
    assert model.kernel is kernel
    assert kernel.numpy().tolist() == [3.0, 3.0]
    assert float(model.slots[0]["m"]) == 3.0
    assert model.average.tolist() == [3.0, 3.0]
    assert model.units == 2


def test_a_checkpoint_may_name_a_part_of_what_was_saved(tmp_path: Path) -> None:
    """TensorFlow's guide: a bias alone, by checkpoints inside of a checkpoint."""
    net = {"l1": {"bias": dl.Variable([1.0, 2.0]), "kernel": dl.Variable(3.0)}}
    path = dl.train.Checkpoint(net=net, step=dl.Variable(7)).save(tmp_path / "ckpt")
    bias = dl.Variable([0.0, 0.0])
    inner = dl.train.Checkpoint(l1=dl.train.Checkpoint(bias=bias))
    status = dl.train.Checkpoint(net=inner).restore(path)
    assert bias.numpy().tolist() == [1.0, 2.0]
    assert status.unused == ("net/l1/kernel", "step")
    with pytest.raises(CheckpointMismatchError, match="nothing took: net/l1/kernel, step"):
        status.assert_consumed()
    status.expect_partial().assert_existing_objects_matched().assert_nontrivial_match()


def test_a_root_has_no_name_in_front(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(Layer(1, 2.0), step=4).save(tmp_path / "ckpt")
    assert dl.train.load_variable(path, "kernel").tolist() == [2.0]
    model = Layer(1, 0.0)
    checkpoint = dl.train.Checkpoint(model, step=0)
    checkpoint.restore(path).assert_consumed()
    assert (model.kernel.numpy().tolist(), checkpoint.step) == ([2.0], 4)


def test_equinox_modules_come_back_as_modules(tmp_path: Path) -> None:
    def make(seed: int) -> eqx.Module:
        return eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(seed))

    path = dl.train.Checkpoint(model=make(1)).save(tmp_path / "ckpt")
    checkpoint = dl.train.Checkpoint(model=make(2))
    checkpoint.restore(path).assert_consumed()
    assert checkpoint.model(jnp.ones(2)).tolist() == make(1)(jnp.ones(2)).tolist()  # type: ignore[operator]


def test_nnx_objects_are_restored_in_place(tmp_path: Path) -> None:
    def make(seed: int) -> tuple[nnx.Module, nnx.Optimizer[Any]]:
        rngs = nnx.Rngs(seed)
        model = nnx.Sequential(nnx.Linear(2, 3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs))
        return model, nnx.Optimizer(model, optax.adam(0.1), wrt=nnx.Param)

    model, optimizer = make(1)
    optimizer.update(model, nnx.state(model, nnx.Param))
    model(jnp.ones((1, 2)))
    path = dl.train.Checkpoint(model=model, optimizer=optimizer).save(tmp_path / "ckpt")
    other, other_optimizer = make(2)
    dl.train.Checkpoint(model=other, optimizer=other_optimizer).restore(path).assert_consumed()
    assert int(other_optimizer.step[...]) == 1
    x = jnp.ones((1, 2))
    assert other(x).tolist() == model(x).tolist()  # the same dropout mask


def test_metrics_keep_what_they_have_counted(tmp_path: Path) -> None:
    def make(replicas: int) -> tuple[dl.Strategy, dl.metrics.Mean]:
        with strategy_of(replicas).scope() as strategy:
            return strategy, dl.metrics.Mean("loss")

    strategy, loss = make(8)
    strategy.run(lambda: loss.update_state(jnp.array([1.0, 2.0])))
    path = dl.train.Checkpoint(loss=loss).save(tmp_path / "ckpt")
    strategy, again = make(3)
    dl.train.Checkpoint(loss=again).restore(path).assert_consumed()
    assert float(again.result()) == 1.5
    strategy.run(lambda: again.update_state(jnp.array([7.0, 7.0])))
    assert float(again.result()) == pytest.approx((8 * 3 + 6 * 7) / 22)


def test_the_position_of_the_input_fits_any_number_of_replicas(tmp_path: Path) -> None:
    def iterator(replicas: int) -> Any:
        dataset = dl.data.Dataset.range(50).shuffle(20, seed=3).batch(8).repeat(2)
        return iter(strategy_of(replicas).experimental_distribute_dataset(dataset))

    def rest(iterator: Any) -> list[list[int]]:
        batches = (getattr(batch, "values", (batch,)) for batch in iterator)
        return [np.concatenate(list(map(np.asarray, parts))).tolist() for parts in batches]

    whole = rest(iterator(8))
    source = iterator(8)
    for _ in range(3):
        next(source)
    path = dl.train.Checkpoint(input=source).save(tmp_path / "ckpt")
    for done, replicas in enumerate((3, 0, 1, 8), 3):
        again = iterator(replicas)
        checkpoint = dl.train.Checkpoint(input=again)
        checkpoint.restore(path)
        next(again)
        path = checkpoint.save(tmp_path / "ckpt")
        assert rest(again) == whole[done + 1 :]


def test_a_position_of_another_pipeline_changes_nothing(tmp_path: Path) -> None:
    shuffled = iter(dl.data.Dataset.range(4).shuffle(4))
    path = dl.train.Checkpoint(x=dl.Variable(1), input=shuffled).save(tmp_path / "ckpt")
    x, plain = dl.Variable(0), iter(dl.data.Dataset.range(4))
    next(plain)
    with pytest.raises(CheckpointMismatchError, match="input can't go to the saved position"):
        dl.train.Checkpoint(x=x, input=plain).restore(path)
    assert (int(x), int(next(plain))) == (0, 1)


def test_none_restores_nothing() -> None:
    x = dl.Variable(1.0)
    status = dl.train.Checkpoint(x=x).restore(None)
    assert (status.restored, float(x)) == (0, 1.0)
    assert status.expect_partial() is status
    for check in (
        status.assert_consumed,
        status.assert_existing_objects_matched,
        status.assert_nontrivial_match,
    ):
        with pytest.raises(CheckpointMismatchError, match="No checkpoint was given"):
            check()


def test_numbers_and_variables_can_take_each_others_place(tmp_path: Path) -> None:
    path = dl.train.Checkpoint(step=dl.Variable(7), rate=0.5).save(tmp_path / "ckpt")
    rate = dl.Variable(0.0)
    checkpoint = dl.train.Checkpoint(step=0, rate=rate)
    checkpoint.restore(path)
    assert (checkpoint.step, type(checkpoint.step), float(rate)) == (7, int, 0.5)


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (optax.adam(0.1), "x is GradientTransformation.* holds nothing that can be saved"),
        (dl.data.Dataset.range(3), r"for a dataset iter\(dataset\)"),
        (np.array(["a"]), "x is array.* which a checkpoint can't hold"),
    ],
)
def test_what_can_t_be_saved_is_refused(thing: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match=says):
        dl.train.Checkpoint(x=thing).save(tmp_path / "ckpt")
    assert list(tmp_path.iterdir()) == []


def test_a_replica_function_can_t_save_or_restore(tmp_path: Path) -> None:
    checkpoint = dl.train.Checkpoint(x=dl.Variable(1.0))
    path = checkpoint.save(tmp_path / "ckpt")
    for verb in (lambda: checkpoint.save(tmp_path / "b"), lambda: checkpoint.restore(path)):
        with pytest.raises(dl.errors.ContextError, match="between the steps"):
            strategy_of(2).run(verb)
