"""`dl.program`: facts of a program that is not run."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab.advice import advise_on_program
from distlab.errors import ArgumentTypeError
from distlab.events import Compile
from distlab.observing.arguments import leaf_of
from distlab.programs.report import Divisible
from tests.listening import listening
from tests.programs import meshes
from tests.programs.meshes import array, grid, reported, shaped


def test_a_report_has_arrays_with_specs() -> None:
    found = reported(meshes.tensor_parallel)
    assert found.mesh == {"data": 4, "model": 2}
    w1 = next(one for one in found.inputs if one.name == "state[0]['w1']")
    assert (w1.shape, w1.spec, w1.bytes_per_device) == ([256, 512], [[], ["model"]], 262_144)
    assert w1.donated
    assert found.memory.argument_bytes == sum(one.bytes_per_device for one in found.inputs)
    assert len(found.outputs) == 14


def test_arrays_that_lie_whole_could_be_divided() -> None:
    found = reported(meshes.data_parallel)
    assert found.could_be_divided() == []  # nothing holds a megabyte
    first, *others = found.could_be_divided(1 << 19)
    assert first == Divisible("state[0]['w1']", "data", 524_288, 458_752)
    assert {one.axis for one in others} == {"data"}
    assert len(others) == 2  # its moments


@pytest.mark.parametrize(
    "make", [meshes.fsdp_by_hand, meshes.ring_attention, meshes.pipeline, meshes.expert_parallel]
)
def test_work_in_a_shard_map_is_divided(make: Any) -> None:
    assert reported(make).computed_times == pytest.approx(1, abs=0.03)


def test_text_and_notebook_show_the_table() -> None:
    found = reported(meshes.ring_attention)
    text = repr(found)
    first, memory, _, headings, *rows = text.splitlines()
    assert first.startswith("step: 8 devices (data 2 \u00d7 seq 4), ")
    assert first.endswith("each device sends 2.49 MB along seq, 262 kB along data")
    assert memory.startswith("memory of a device: arguments 393 kB, ")
    assert headings.split()[:4] == ["collective", "times", "operand", "sent"]
    assert rows[0].split()[:6] == ["collective-permute", "8", "131", "kB", "131", "kB"]
    assert "seq +1" in rows[0]
    assert "the program" in rows[0]
    assert "gradients of k, o, q and 1 more" in rows[2]
    html = found._repr_html_()
    assert "<td" in html
    assert "seq\u00a0-1" in html
    assert "<script" not in html


def test_more_kinds_of_collectives_than_fit_are_counted() -> None:
    mesh = grid(data=8)

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)
    def step(x: Any) -> Any:
        for size in range(1, 19):
            x = x + jax.lax.ppermute(x[:size], "data", [(0, 1)]).sum()
        return x

    found = dl.program(step, shaped(mesh, P(), array(32)))
    assert repr(found).count("collective-permute") == found._repr_html_().count("<td") // 8 == 16
    assert "and 2 more kinds of collectives" in repr(found)
    assert "and 2 more" in found._repr_html_()


def test_every_way_to_jit_has_a_program() -> None:
    mesh = grid(data=8)
    x = shaped(mesh, P("data"), array(64, 16))
    w = shaped(mesh, P(), array(16, 4))

    def loss(w: Any, x: Any) -> Any:
        return jnp.mean((x @ w) ** 2)

    def step(w: Any, x: Any) -> Any:
        return w - jax.grad(loss)(w, x)

    jitted = jax.jit(step)
    ways: list[Any] = [jitted, step, dl.observe(jitted)]
    found = [dl.program(way, w, x) for way in ways]
    arrays = [jax.device_put(jnp.ones(one.shape), one.sharding) for one in (w, x)]
    found += [dl.program(eqx.filter_jit(step), *arrays)]
    found += [dl.program(jitted.lower(w, x).compile())]
    for one in found:
        assert one.by_axis() == {"data": 2 * 16 * 4 * 4 * 7 // 8}
        assert one.collectives[0].purpose == "gradients"
    mapped = dl.program(jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i"), array(8, 4))
    assert mapped.by_axis() == {"i": 28}


@pytest.mark.parametrize("dtype", [jnp.float32, np.float32])
def test_a_type_is_no_array_among_the_arguments(dtype: Any) -> None:
    def make(mesh: Any) -> Any:
        cast = jax.jit(lambda x, dtype: x.astype(dtype), static_argnums=1)
        return cast, (shaped(mesh, P("data"), array(64)), dtype)

    fn, args = make(grid(data=8))
    assert [one.name for one in dl.program(fn, *args).inputs] == ["x"]
    assert [one.name for one in dl.simulate(make, [{"data": 4}])[0].inputs] == ["x"]
    assert leaf_of(dtype).where == ""


def test_modules_of_flax_have_programs_with_their_names() -> None:
    mesh = grid(data=8)
    model = nnx.Linear(16, 4, rngs=nnx.Rngs(0))
    nnx.update(model, jax.device_put(nnx.state(model), NamedSharding(mesh, P())))

    @nnx.jit
    def step(model: Any, x: Any) -> None:
        gradients = nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)
        old = nnx.state(model, nnx.Param)
        nnx.update(model, jax.tree.map(lambda p, g: p - 0.1 * g, old, gradients))

    found = dl.program(step, model, shaped(mesh, P("data"), array(64, 16)))
    (one,) = found.collectives
    assert (one.axes, one.purpose) == (["data"], "gradients")
    assert one.names == ["bias", "kernel"]
    assert [one.name for one in found.inputs] == ["model.bias.value", "model.kernel.value", "x"]


def test_programs_need_a_function() -> None:
    with pytest.raises(ArgumentTypeError, match=r"program\(\) needs a function, got 3"):
        dl.program(3)  # type: ignore[arg-type]


def test_programs_of_a_strategy_name_what_they_combine() -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        w = dl.Variable(jnp.ones((16, 4)), name="dense/kernel")
    state = strategy.replicate({"a": jnp.ones((8, 2))})
    x = strategy.experimental_distribute_values_from_function(lambda _: jnp.ones((4, 16)))

    def step(state: Any, x: Any) -> Any:
        def loss(values: Any) -> Any:
            return jnp.mean((x @ values[0]) ** 2) + jnp.mean((x[:, :8] @ values[1]) ** 2)

        gradients = jax.grad(loss)((w.value(), state["a"]))
        gradients = dl.get_replica_context().all_reduce("MEAN", gradients)
        w.assign_sub(0.1 * gradients[0])
        return {"a": state["a"] - 0.1 * gradients[1]}

    with listening() as listener:
        strategy.run(step, args=(state, x))
    (event,) = listener.of(Compile)
    assert event.mesh == {"replica": 2}
    (one,) = event.collectives
    assert (one.axes, one.asked, one.purpose) == (["replica"], "program", "gradients")
    assert sorted(one.names) == ["a", "dense/kernel"]
    assert [place.name for place in event.inputs] == ["dense/kernel", "state['a']", "x"]


def test_events_of_an_observed_function_have_its_work() -> None:
    mesh = grid(data=4, model=2)
    square = jax.device_put(jnp.ones((128, 128)), NamedSharding(mesh, P()))
    x = jax.device_put(jnp.ones((256, 128)), NamedSharding(mesh, P("data")))
    with listening() as listener:
        dl.observe(jax.jit(lambda a, x: a - 0.1 * jnp.mean(x @ a)))(square, x)
    (event,) = listener.of(Compile)
    assert event.computed_times == pytest.approx(2, rel=0.05)
    assert [place.name for place in event.inputs] == ["a", "x"]
    assert [one.cause for one in advise_on_program(event)] == ["repeated_work"]
