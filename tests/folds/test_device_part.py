"""Very many devices: groups of neighbours stand for their devices."""

from __future__ import annotations

import numpy as np
import pytest

from distlab.folds import (
    CaptureColumns,
    Captures,
    Folds,
    part_of_captures,
    part_of_devices,
    part_of_placements,
)
from tests.synthetic import beginning, steps


@pytest.fixture(scope="module")
def folds() -> Folds:
    """A run on 130 devices."""
    made = Folds()
    made.add([*beginning(130), *steps(33, replicas=130, batch=4_096, source=10_000)])
    return made


def captures(devices: int) -> CaptureColumns:
    """A capture of devices of which every third computes more than its neighbours."""
    compute = np.where(np.arange(devices) % 3 == 1, 0.9, 0.2)
    nothing = np.zeros(devices)
    return {
        **Captures().columns(),
        "numbers": [0],
        "starts_s": [0.0],
        "steps_of": [5],
        "number": 0,
        "device": [f"CPU:{number}" for number in range(devices)],
        "compute": compute,
        "waiting": 1 - compute,
        "copy": nothing,
        "idle": nothing,
        "spans": [np.array([[0.0, number, 0.0]]) for number in range(devices)],
    }


def test_a_group_of_devices_has_the_mean_of_their_shares(folds: Folds) -> None:
    whole = folds.columns("devices")
    grouped = part_of_devices(whole)
    assert grouped["device"][0] == "CPU:0 to CPU:2"
    assert grouped["device"][-1] == "CPU:129"
    assert len(grouped["device"]) == 44
    assert grouped["busy"][:, 1].tolist() == pytest.approx(whole["busy"][:, 3:6].mean(1).tolist())
    assert grouped["now"][43] == pytest.approx(whole["now"][129])
    some = part_of_devices(whole, 100)
    assert some["device"] == [f"CPU:{n}" for n in range(66, 130)]
    assert some["now"].tolist() == whole["now"][66:].tolist()


def test_a_group_of_devices_has_the_mean_of_their_bytes(folds: Folds) -> None:
    whole = folds.columns("placement")
    grouped = part_of_placements(whole)
    assert grouped["device"][:2] == ["CPU:0 to CPU:2", "CPU:3 to CPU:5"]
    assert grouped["bytes"].shape == (len(whole["name"]), 44)
    for row, sizes in zip(grouped["bytes"], whole["bytes"], strict=True):
        assert row[0] == round(sizes[:3].mean())
        assert row[43] == sizes[129]
    some = part_of_placements(whole, 64)
    assert some["device"] == [f"CPU:{n}" for n in range(64, 128)]
    assert some["bytes"].tolist() == whole["bytes"][:, 64:128].tolist()


def test_of_a_group_the_device_that_others_wait_for_is_shown() -> None:
    grouped = part_of_captures(captures(129))
    assert grouped["device"] == [f"CPU:{number}" for number in range(1, 129, 3)]
    assert grouped["compute"].tolist() == [0.9] * 43
    assert [rows[0, 1] for rows in grouped["spans"]] == list(range(1, 129, 3))
    some = part_of_captures(captures(129), 128)
    assert some["device"] == [f"CPU:{number}" for number in range(65, 129)]
    assert [rows[0, 1] for rows in some["spans"]] == list(range(65, 129))


def test_few_devices_and_none_are_left_as_they_are(folds: Folds) -> None:
    few = captures(64)
    assert part_of_captures(few) is few
    nothing = Folds()
    devices, placements = nothing.columns("devices"), nothing.columns("placement")
    assert part_of_devices(devices, 64) is devices
    assert part_of_placements(placements, 64) is placements
