"""NVML's numbers of GPUs, from a library that stands in for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from distlab.events import DeviceSample
from distlab.folds import Folds
from distlab.page import facts
from distlab.profiling import nvml
from tests.recording.samples import made

GB = 1 << 30


class FakeNvml:
    """The part of `pynvml` that is used, over GPUs with known numbers."""

    class NVMLError(Exception):
        """The library's exception."""

    def __init__(self, *, driver: bool = True) -> None:
        self.driver = driver
        self.gpus = {f"GPU-{number}": (number + 1) * GB for number in range(4)}

    def nvmlInit(self) -> None:  # noqa: N802 - the library's names
        if not self.driver:
            raise self.NVMLError("no driver")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        if index >= len(self.gpus):
            raise self.NVMLError("not found")
        return list(self.gpus)[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid not in self.gpus:
            raise self.NVMLError("not found")
        return uuid

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(used=self.gpus[handle])

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=10 * self.gpus[handle] // GB)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    nvml._library.cache_clear()
    yield
    nvml._library.cache_clear()


def gpus(*numbers: int) -> list[Any]:
    return [SimpleNamespace(platform="gpu", local_hardware_id=number) for number in numbers]


@pytest.mark.parametrize(
    ("visible", "used"),
    [(None, [1, 2]), ("2,3", [3, 4]), ("GPU-3,GPU-0", [4, 1]), ("3", None), ("9,8", None)],
)
def test_the_devices_that_cuda_shows_are_asked_for(
    visible: str | None, used: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    told = nvml.gpu_use(gpus(0, 1))
    if used is None:
        assert told is None
    else:
        assert told == ([n * GB for n in used], [n / 10 for n in used])


def test_without_library_driver_or_gpu_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert nvml.gpu_use(gpus(0)) is None
    nvml._library.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(driver=False))
    assert nvml.gpu_use(gpus(0)) is None
    nvml._library.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    assert nvml.gpu_use(jax.devices()[:2]) is None
    assert nvml.gpu_use([]) is None


def test_the_page_says_what_was_told() -> None:
    folds = Folds()
    assert facts.device_facts(folds.columns("devices"))["gpu_use"] == ""
    folds.add(
        [
            made(
                DeviceSample,
                busy_ns=[500, 500],
                used_bytes=[2_000_000_000, 3_000_000_000],
                utilization=[0.25, 0.5],
            )
        ]
    )
    said = facts.device_facts(folds.columns("devices"))["gpu_use"]
    assert said == "replica 0 2.00 GB, 25 %, replica 1 3.00 GB, 50 %"
