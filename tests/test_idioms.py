"""Idioms of published programs run as they are written."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import jax_utils, nnx

import distlab as dl
from distlab.errors import NoEffectWarning, StructureError, ValueShapeError


def mirrored() -> dl.Strategy:
    return dl.MirroredStrategy(["CPU:0", "CPU:1"])


def test_iterators_have_a_method_next() -> None:
    dataset = dl.data.Dataset.range(4).batch(2)
    assert iter(dataset).next().tolist() == [0, 1]
    iterator = iter(mirrored().experimental_distribute_dataset(dataset))
    assert [part.tolist() for part in iterator.next().values] == [[0], [1]]


def test_per_replica_values_are_made_of_a_list() -> None:
    strategy = mirrored()
    sizes = dl.PerReplica([jnp.int32(3), jnp.int32(4)])
    assert [int(n) for n in strategy.run(lambda n: n + 1, args=(sizes,)).values] == [4, 5]
    rows = dl.PerReplica([np.ones(2), np.ones(1)])
    assert [float(n) for n in strategy.run(jnp.sum, args=(rows,)).values] == [2.0, 1.0]


def test_a_scope_around_an_await_belongs_to_its_task() -> None:
    first, second = mirrored(), dl.MirroredStrategy(["CPU:2", "CPU:3"])

    async def train(strategy: dl.Strategy, others: asyncio.Event, own: asyncio.Event) -> bool:
        with strategy.scope():
            own.set()
            await others.wait()
            return dl.Variable(jnp.zeros(2)).strategy is strategy

    async def both() -> list[bool]:
        events = asyncio.Event(), asyncio.Event()
        tasks = [train(first, *events), train(second, *reversed(events))]
        return [*await asyncio.gather(*tasks), dl.has_strategy()]

    assert asyncio.run(both()) == [True, True, False]


def test_a_context_copied_in_a_scope_holds_no_strategy() -> None:
    def use() -> tuple[contextvars.Context, weakref.ref[dl.Strategy]]:
        strategy = mirrored()
        with strategy.scope():
            return contextvars.copy_context(), weakref.ref(strategy)

    context, strategy = use()
    gc.collect()
    assert strategy() is None
    assert context.run(dl.has_strategy) is False


def test_disabled_jit_runs_the_step_as_python() -> None:
    strategy = mirrored()
    seen: list[Any] = []

    def step(x: Any) -> Any:
        seen.append(x)
        return x + 1

    with jax.disable_jit():
        result = strategy.run(step, args=(jnp.float32(1.0),))
    assert [float(value) for value in result.values] == [2.0, 2.0]
    assert [float(x) for x in seen] == [1.0, 1.0]


def test_an_axis_of_pmap_gets_the_name_of_the_replicas_axis() -> None:
    with pytest.raises(NameError, match=r"the axis of the replicas is 'replica'"):
        mirrored().run(lambda x: jax.lax.pmean(x, "batch"), args=(jnp.ones(2),))


def test_a_part_of_a_checkpoint_may_have_a_private_name(tmp_path: Path) -> None:
    class Model:
        _head: Any

    model = Model()
    model._head = Model()
    model._head.w = dl.Variable([1.0, 2.0])
    path = dl.train.Checkpoint(model=model).save(tmp_path / "ckpt")
    model._head.w.assign([0.0, 0.0])
    part = dl.train.Checkpoint(_head=model._head)
    dl.train.Checkpoint(model=part).restore(path).expect_partial()
    assert model._head.w.numpy().tolist() == [1.0, 2.0]


def test_metrics_are_called_and_named_as_those_of_keras() -> None:
    strategy = mirrored()
    with strategy.scope():
        mean, accuracy = dl.metrics.Mean("loss"), dl.metrics.Accuracy("train_accuracy")
        precision = dl.metrics.Precision(name="precision")
    inside = strategy.run(lambda x: mean(x), args=(jnp.asarray([1.0, 3.0]),))  # noqa: PLW0108
    assert [float(value) for value in inside.values] == [2.0, 2.0]
    assert float(mean(jnp.asarray([8.0]))) == pytest.approx(16 / 5)
    mean.reset_states()
    assert accuracy.name == "train_accuracy"
    strategy.run(lambda: precision.update_state([1, 0, 1], [1, 1, 1]))
    assert float(precision.result()) == pytest.approx(2 / 3)
    with pytest.raises(AttributeError):
        dl.metrics.NoSuchMetric  # noqa: B018


def test_options_of_estimators_without_effect_are_noted_once() -> None:
    make = dl.data.Dataset.range(8).batch
    with pytest.warns(NoEffectWarning, match=r"EvalSpec\.throttle_secs has no effect"):
        dl.estimator.EvalSpec(make, steps=None, throttle_secs=30)
    dl.estimator.EvalSpec(make, steps=None, throttle_secs=30)
    with pytest.warns(NoEffectWarning, match=r"RunConfig\.save_summary_steps"):
        dl.estimator.RunConfig(save_summary_steps=10)


def test_layers_of_a_scan_draw_keys_that_count_as_unchanged() -> None:
    class Block(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.linear, self.dropout = nnx.Linear(3, 3, rngs=rngs), nnx.Dropout(0.3, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.dropout(jnp.tanh(self.linear(x)))

    def forward(blocks: Any, x: Any) -> Any:
        block = nnx.remat(lambda x, block: block(x))
        scanned: Any = nnx.scan(block, in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        return scanned(x, blocks)

    make = nnx.split_rngs(splits=2)(nnx.vmap(in_axes=0, out_axes=0)(Block))
    blocks, before = make(nnx.Rngs(0)), make(nnx.Rngs(0))

    def step(blocks: Any, x: Any) -> None:
        gradients = nnx.grad(lambda blocks: (forward(blocks, x) ** 2).sum())(blocks)
        gradients = dl.get_replica_context().all_reduce("SUM", gradients)
        parameters = nnx.state(blocks, nnx.Param)
        nnx.update(blocks, jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradients))

    mirrored().run(step, args=(blocks, jnp.ones((2, 3))))
    assert not np.allclose(blocks.linear.kernel[...], before.linear.kernel[...])


def test_the_cache_of_a_decoder_is_passed_as_argument_and_result() -> None:
    layer = nnx.MultiHeadAttention(
        num_heads=2, in_features=4, qkv_features=4, decode=True, rngs=nnx.Rngs(0)
    )
    layer.init_cache((2, 5, 4))
    strategy = mirrored()
    (tokens,) = strategy.experimental_distribute_dataset(
        dl.data.Dataset.from_tensor_slices(np.ones((4, 1, 4), "f4")).batch(4)
    )
    with pytest.raises(StructureError, match=r"nnx\.split\(model, nnx\.Cache, \.\.\.\)"):
        strategy.run(lambda layer, x: layer(x), args=(layer, tokens))
    split: Any = nnx.split
    graph, cache, rest = split(layer, nnx.Cache, ...)

    def step(cache: Any, x: Any) -> tuple[Any, Any]:
        model = nnx.merge(graph, cache, rest)
        return model(x), nnx.state(model, nnx.Cache)

    _, caches = strategy.run(step, args=(cache, tokens))
    _, caches = strategy.run(step, args=(caches, tokens))
    assert [int(index) for index in caches["cache_index"].get_value().values] == [2, 2]


def test_an_unreplicated_value_names_the_way_to_the_first_copy() -> None:
    strategy = mirrored()
    result = strategy.run(lambda: dl.get_replica_context().replica_id_in_sync_group * 1.0)
    unreplicate: Any = jax_utils.unreplicate
    with pytest.raises(StructureError, match=r"experimental_local_results\(value\)\[0\]"):
        strategy.reduce("SUM", unreplicate(result), axis=None)


def test_elements_may_have_none_in_place_of_a_component(tmp_path: Path) -> None:
    dataset = dl.data.Dataset.range(4).map(lambda i: (i, None)).cache(str(tmp_path / "kept"))
    (plain,) = dataset.batch(4)
    assert (plain[0].tolist(), plain[1]) == ([0, 1, 2, 3], None)
    strategy = mirrored()
    ((rows, nothing),) = strategy.experimental_distribute_dataset(dataset.batch(4))
    assert nothing is None
    total = strategy.run(lambda rows, _: rows.sum(), args=(rows, nothing))
    assert [int(part) for part in total.values] == [1, 5]
    with pytest.raises(StructureError, match="can't be None alone"):
        list(dl.data.Dataset.range(2).map(lambda _: None))


@pytest.mark.parametrize("replicas", [1, 2])
def test_texts_of_batches_pass_through_one_program_unread(replicas: int) -> None:
    strategy = dl.MirroredStrategy([f"CPU:{n}" for n in range(replicas)])
    columns = {"id": [*"abcdef"], "x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}
    batches = dl.data.Dataset.from_tensor_slices(columns).batch(2)
    traced: list[None] = []

    def step(b: Any) -> Any:
        traced.append(None)
        return {"id": b["id"], "twice": 2 * b["x"]}

    ids, sums = [], []
    for batch in strategy.experimental_distribute_dataset(batches):
        result = strategy.run(step, args=(batch,))
        ids += [t for part in strategy.experimental_local_results(result["id"]) for t in part]
        sums.append(float(strategy.reduce("SUM", result["twice"], axis=0)))
    assert ids == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert sums == [6.0, 14.0, 22.0]
    assert len(traced) == 1
    with pytest.raises(StructureError, match="holds texts"):
        strategy.run(lambda b: b["id"] + 1, args=(batch,))


def test_texts_are_read_where_functions_run_eagerly() -> None:
    strategy = mirrored()
    (batch,) = strategy.experimental_distribute_dataset(
        dl.data.Dataset.from_tensor_slices({"id": ["a", "bc"], "x": [1.0, 2.0]}).batch(2)
    )
    options = dl.RunOptions(run_eagerly=True)
    sizes = strategy.run(lambda b: b["x"] + len(b["id"][0]), args=(batch,), options=options)
    assert [part.tolist() for part in sizes.values] == [[2.0], [4.0]]


def test_a_stateful_layer_for_the_global_batch_names_the_size_to_use() -> None:
    with mirrored().scope():
        model = keras.Sequential(
            [keras.Input(batch_shape=(4, 5, 3)), keras.layers.LSTM(4, stateful=True)]
        )
        model.compile("sgd", "mse")
    with pytest.raises(ValueShapeError, match=r"Build it with batch_shape=\(2, \.\.\.\)"):
        model.fit(np.ones((8, 5, 3), "f4"), np.ones((8, 4), "f4"), batch_size=4, verbose=0)


def test_a_list_that_map_returns_is_a_tuple_as_in_tf_data(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2.5\n3,4.5\n")
    lines = dl.data.TextLineDataset(str(path)).skip(1)
    rows = lines.map(lambda line: dl.io.decode_csv(line, [0, 0.0])).map(lambda a, b: a * b)
    assert [float(row) for row in rows] == [2.5, 13.5]


def test_padded_batches_keep_strings_beside_sequences() -> None:
    spec = {"id": dl.data.TensorSpec([], str), "x": dl.data.TensorSpec([None], "float32")}
    dataset = dl.data.Dataset.from_generator(
        lambda: ({"id": f"a{i}", "x": np.ones(i + 1, "f4")} for i in range(2)),
        output_signature=spec,
    )
    batch = next(iter(dataset.padded_batch(2, padded_shapes={"id": [], "x": [None]})))
    assert batch["id"].tolist() == [b"a0", b"a1"]
    assert batch["x"].tolist() == [[1.0, 0.0], [1.0, 1.0]]
