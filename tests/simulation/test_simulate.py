"""`dl.simulate`: a program's memory and collectives on meshes that are not here."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import psutil
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import distlab as dl
from distlab.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingExtraError,
    SimulationError,
)
from distlab.simulation import extrapolation, process
from distlab.simulation.asked import asked
from distlab.simulation.child import Job
from distlab.simulation.counts import BFLOAT16, CHOSEN, SLICED
from distlab.simulation.pickling import pickled
from distlab.simulation.report import SimulatedMesh, Simulation
from tests.simulation.makers import ROWS, WIDE, make, shaped

WEIGHTS = 2 * WIDE * WIDE * 4
SIZES = (4, 16, 64)
DIRECT = [
    *({"data": n} for n in SIZES),
    *({"data": n // 2, "model": 2} for n in SIZES),
    *({"parts": n} for n in SIZES),
    *({"gathered": n} for n in SIZES),
    {"half": 4},
    {"data": 3},
]
LARGE = [one for one in DIRECT if max(one.values()) > 4]
CHANGING = [{"ring": 32}, {"stages": 32}]


@functools.cache
def simulated() -> dict[str, SimulatedMesh]:
    """Returns the programs of all meshes by their axes, compiled by one process."""
    speeds = {"data": 1e9, "parts": 1e9}
    return {str(one.mesh): one for one in dl.simulate(make, DIRECT, speeds)}


@functools.cache
def extrapolated() -> dict[str, SimulatedMesh]:
    """Returns the programs on the larger meshes, compiled for at most 16 devices."""
    return {str(one.mesh): one for one in dl.simulate(make, LARGE + CHANGING, most_devices=16)}


@pytest.mark.parametrize("n", SIZES)
def test_data_parallel_sends_gradients_and_loss(n: int) -> None:
    found = simulated()[str({"data": n})]
    assert found.sent() == {"data": {"all-reduce": 2 * (WEIGHTS + 4) * (n - 1) // n}}
    assert found.memory.argument_bytes == WEIGHTS + ROWS * WIDE * 4 // n
    assert found.memory.output_bytes == WEIGHTS + 4
    assert not any(found.marks)
    assert found.computed_times == pytest.approx(1, abs=0.05 * n / 4)
    assert found.could_save() == WEIGHTS - WEIGHTS // n


@pytest.mark.parametrize("n", SIZES)
def test_tensor_parallel_sends_activations_and_halves(n: int) -> None:
    found, data = simulated()[str({"data": n // 2, "model": 2})], n // 2
    activations = ROWS // data * WIDE * 4
    assert found.by_axis() == {
        "model": 2 * activations // 2,
        "data": 2 * (WEIGHTS // 2 + 4) * (data - 1) // data,
    }
    assert found.memory.argument_bytes == WEIGHTS // 2 + ROWS * WIDE * 4 // data


@pytest.mark.parametrize("n", SIZES)
def test_fsdp_by_hand_gathers_and_scatters(n: int) -> None:
    found = simulated()[str({"parts": n})]
    assert found.sent() == {
        "parts": {
            "all-gather": WEIGHTS // n * (n - 1),
            "reduce-scatter": WEIGHTS * (n - 1) // n,
            "all-reduce": 2 * 4 * (n - 1) // n,
        }
    }
    assert not any(found.marks)
    assert found.memory.argument_bytes == (WEIGHTS + ROWS * WIDE * 4) // n


def test_annotated_fsdp_is_marked() -> None:
    found = simulated()[str({"gathered": 16})]
    marks = {one.kind: own for one, own in zip(found.collectives, found.marks, strict=True)}
    assert marks["all-gather"] == (CHOSEN,)
    assert SLICED in marks["all-reduce"]
    assert not any(map(found.exact, range(len(found.marks))))


def test_bfloat16_counts_two_bytes_and_is_marked() -> None:
    found = simulated()[str({"half": 4})]
    sent = found.sent()["half"]
    assert sent["all-gather"] == WEIGHTS // 2 // 4 * 3
    assert sent["reduce-scatter"] == WEIGHTS // 2 * 3 // 4
    assert {one.dtype for one in found.collectives} == {"bf16", "f32"}
    assert {mark for own in found.marks for mark in own} == {BFLOAT16}
    assert all(map(found.exact, range(len(found.marks))))


def test_what_does_not_divide_is_named() -> None:
    found = simulated()[str({"data": 3})]
    assert found.does_not_divide == f"x[{ROWS}, {WIDE}]: {ROWS} by data 3"
    assert (found.memory.argument_bytes, found.collectives) == (None, [])


@pytest.mark.parametrize("mesh", LARGE, ids=str)
def test_extrapolation_equals_the_direct_count(mesh: dict[str, int]) -> None:
    direct, found = simulated()[str(mesh)], extrapolated()[str(mesh)]
    assert bool(found.extrapolated_from) == (direct.devices > 16)
    assert found.sent() == direct.sent()
    assert found.inputs == direct.inputs
    assert (found.memory.argument_bytes, found.memory.output_bytes) == (
        direct.memory.argument_bytes,
        direct.memory.output_bytes,
    )
    assert found.computed_times == pytest.approx(direct.computed_times, rel=0.05)
    assert found.flops == pytest.approx(direct.flops, rel=0.05)
    assert found.marks == direct.marks


def test_a_result_says_from_what_it_is_extrapolated() -> None:
    found = extrapolated()[str({"data": 64})]
    assert found.extrapolated_from == [{"data": 2}, {"data": 4}, {"data": 8}]
    assert "extrapolated from data 2, data 4; data 8 was predicted exactly" in repr(found)


def test_a_changing_program_is_compiled_for_its_mesh() -> None:
    found = extrapolated()[str({"ring": 32})]
    assert found.extrapolated_from == []
    assert found.sent() == {"ring": {"collective-permute": 31 * WIDE // 32 * 4}}


def test_what_small_meshes_refuse_is_compiled_for_the_large_one() -> None:
    found = extrapolated()[str({"stages": 32})]
    assert found.extrapolated_from == []
    assert found.sent() == {"stages": {"all-reduce": 2 * (WEIGHTS + 4) * 31 // 32}}


def test_small_meshes_have_two_devices_on_each_axis() -> None:
    basis = extrapolation.basis({"data": 64, "model": 4}, 32)
    assert basis is not None
    assert basis.meshes == [{"data": n, "model": 4} for n in (2, 4, 8)]
    two = extrapolation.basis({"a": 32, "b": 32}, 64)
    assert two is not None
    assert len(two.meshes) == 5
    assert extrapolation.basis({"data": 127}, 64) is None


def test_times_are_modelled_from_link_speeds_alone() -> None:
    assert simulated()[str({"gathered": 4})].modelled_s is None
    found = simulated()[str({"data": 4})]
    assert found.modelled_s == found.by_axis()["data"] / 1e9
    assert "modelled" in repr(Simulation("step", [found]))
    assert "modelled" not in repr(Simulation("step", [extrapolated()[str({"data": 64})]]))
    tensor = simulated()[str({"data": 2, "model": 2})]
    assert tensor.modelled_s is None  # the speed along model is unknown


def test_text_and_notebook_show_a_row_for_each_mesh() -> None:
    meshes = [simulated()[str(one)] for one in ({"data": 4}, {"gathered": 64}, {"data": 3})]
    found = Simulation("train_step", meshes)
    text = repr(found)
    assert text.splitlines()[1].split("  ")[0] == "mesh"
    assert "all-gather \u2248 32.3 kB" in text
    assert f"\u2248 {CHOSEN}" in text
    assert f"data 3: does not divide x[{ROWS}, {WIDE}]" in text
    html = found._repr_html_()
    assert html.count("<details>") == 2
    assert "<script" not in html
    assert "gathered\u00a064" in html


def failing(mesh: Any) -> Any:
    raise LookupError(f"no program for {mesh.size}")


def test_an_error_of_make_has_its_line_and_mesh() -> None:
    with pytest.raises(LookupError, match="no program for 4") as caught:
        dl.simulate(failing, [{"data": 4}])
    line = failing.__code__.co_firstlineno + 1
    assert f"at test_simulate.py:{line}, for data 4" in caught.value.__notes__[0]


def slow(mesh: Any) -> Any:
    time.sleep(60)


def aborting(mesh: Any) -> Any:
    os.write(2, b"out of luck")
    os._exit(3)


def killed(mesh: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("make", "timeout_s", "message"),
    [
        (slow, 0.2, r"not compiled within 0\.2 s"),
        (aborting, 60, "ended with 3 and no result.*out of luck"),
        (killed, 60, "when memory runs out"),
    ],
)
def test_a_process_without_a_result_says_why(make: Any, timeout_s: float, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        dl.simulate(make, [{"data": 2}], timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("meshes", "speeds", "error"),
    [
        ({"data": 4}, None, ArgumentTypeError),
        ([{"data": 0}], None, ArgumentValueError),
        ([{}], None, ArgumentValueError),
        ([{"data": 4}], {"data": "fast"}, ValueError),
    ],
)
def test_invalid_meshes_and_speeds_are_refused(meshes: Any, speeds: Any, error: Any) -> None:
    with pytest.raises(error):
        dl.simulate(make, meshes, speeds)


def test_what_does_not_travel_is_refused() -> None:
    mesh = jax.make_mesh((8,), ("data",))
    here = NamedSharding(mesh, P())
    with pytest.raises(ArgumentTypeError, match="Make meshes, devices and shardings inside"):
        dl.simulate(lambda _: here, [{"data": 4}])
    with pytest.raises(ArgumentTypeError, match="must return \\(fn, args\\)"):
        dl.simulate(lambda _: 5, [{"data": 4}])


def test_functions_that_were_jitted_and_observed_outside_of_make_keep_their_options() -> None:
    jitted = jax.jit(lambda x, times: (times * x).sum(), static_argnums=1)
    donating = dl.observe(jax.jit(jitted, static_argnums=1, donate_argnums=0))

    def make_outside(mesh: Any) -> Any:
        return donating, (shaped(mesh, WIDE, spec=P("data")), 2)

    (found,) = dl.simulate(make_outside, [{"data": 2}])
    assert found.sent() == {"data": {"all-reduce": 4}}
    assert [one.donated for one in found.inputs] == [True]


def test_a_topology_without_libtpu_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlab.simulation.process.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="pip install libtpu"):
        dl.simulate(make, ["v5e:2x4"])


def test_an_interrupt_ends_the_process() -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        dl.simulate(slow, [{"data": 4}])
    commands = [" ".join(one.cmdline()) for one in psutil.Process().children()]
    assert not any("simulation.child" in command for command in commands)


def test_the_process_ends_with_its_parent() -> None:
    job = pickle.dumps(Job(pickled(slow), asked([{"data": 2}]), [], {}))
    another_parent = [sys.executable, "-c", process._CODE, "0"]
    assert subprocess.run(another_parent, input=job, check=False, timeout=60).returncode == 1


def test_a_module_that_sets_its_own_devices_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "import distlab as dl, jax, jax.numpy as jnp",
        "from tests.simulation.makers import P, shaped",
        "dl.use_cpu_devices(8)",
        "ONES = jnp.ones(3)",
        "def make(mesh):",
        "    return (lambda x: x.sum() + ONES.sum()), (shaped(mesh, 64, spec=P('data')),)",
    ]
    (tmp_path / "trains_on_eight.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    from trains_on_eight import make  # type: ignore[import-not-found]

    (found,) = dl.simulate(make, [{"data": 16}])
    assert found.sent() == {"data": {"all-reduce": 2 * 4 * 15 // 16}}
