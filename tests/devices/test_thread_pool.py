"""XLA's thread pool is large enough for all devices, whichever way they were asked for."""

from __future__ import annotations

import os

import pytest

from distlab.devices import thread_pool
from tests.devices.programs import finish

# A step whose callback gets 1 MB deadlocked, with one thread for each device.
STEPS = """
import jax, numpy as np
import distlab as dl
strategy = dl.MirroredStrategy()
def step(x):
    kind = jax.ShapeDtypeStruct(x.shape, x.dtype)
    y = jax.pure_callback(lambda a: np.asarray(a) * 2, kind, x)
    return dl.get_replica_context().all_reduce("SUM", y.sum())
batch = np.ones(1 << 18, np.float32)
for _ in range(20):
    result = strategy.run(step, args=(batch,))
first = strategy.experimental_local_results(result)[0]
print(strategy.num_replicas_in_sync, float(first) / (1 << 19))
"""
FLAG = "--xla_force_host_platform_device_count="


def test_it_is_sized_before_jax_is_first_used() -> None:
    before = "import jax, distlab; jax.devices()"
    status, out = finish(f"{before}\n{STEPS}", "-W", "error", XLA_FLAGS=f"{FLAG}'16'")
    assert (status, out) == (0, "16 16.0\n")


def test_fewer_steps_are_in_flight_where_jax_started_first() -> None:
    program = """
import jax
jax.devices()
import distlab as dl
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    strategy = dl.MirroredStrategy()
    dl.MirroredStrategy()
from distlab.devices import in_flight
result = [strategy.run(lambda: dl.get_replica_context().all_reduce("SUM", 1.0)) for _ in range(50)]
print(len(told), in_flight.limit, len(in_flight.waiting()) <= 2, told[0].message)
"""
    status, out = finish(program, XLA_FLAGS=f"{FLAG}8", NPROC="2")
    assert status == 0, out
    assert out.startswith("1 2 True JAX had started 8 CPU devices with 8 threads before distlab")
    assert "PJRT_NPROC=16" in out


@pytest.mark.parametrize(
    ("environ", "devices"),
    [
        ({}, 1),
        ({"XLA_FLAGS": f"{FLAG}3"}, 3),
        ({"XLA_FLAGS": f"--xla_dump_to=x {FLAG}3 {FLAG}5"}, 5),
        ({"XLA_FLAGS": f"{FLAG}'7'"}, 7),
        ({"XLA_FLAGS": f'--xla_dump_to="x y" {FLAG}"+7"'}, 7),
        ({"JAX_NUM_CPU_DEVICES": "6"}, 6),
    ],
    ids=str,
)
def test_the_devices_to_come_are_counted(
    environ: dict[str, str], devices: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distlab.devices.thread_pool.sys.modules", {})
    for name in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert thread_pool.devices_to_come() == devices


def test_a_larger_pool_that_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}8")
    monkeypatch.setenv("PJRT_NPROC", "100")
    assert thread_pool.enlarge()
    assert os.environ["PJRT_NPROC"] == "100"
    monkeypatch.setenv("PJRT_NPROC", "3")
    thread_pool.enlarge()
    assert int(os.environ["PJRT_NPROC"]) >= 16
