"""Evidence for advice, of runs on few devices and on very many."""

from __future__ import annotations

import msgspec
import pytest

from distlab.folds.evidence import Evidence
from tests.recording import samples
from tests.synthetic import STEP_NS, beginning, steps


@pytest.mark.slow
def test_events_that_grow_with_devices_are_kept_within_bound() -> None:
    devices, kept = 256, 2_500
    evidence = Evidence()
    evidence.add(beginning(devices))
    for first in range(0, 5_200, 100):
        evidence.add(list(steps(100, replicas=devices, first=first)))
    columns = evidence.columns()
    assert len(columns["steps"]["step"]) == 5_000
    assert columns["ready"]["step"].tolist() == list(range(4, 5_200, 5))
    assert {len(row) for row in columns["ready"]["ready_ns"]} == {devices}
    times = columns["batches"]["time_ns"]
    assert len(times) == kept
    assert times[-1] - times[0] == (kept - 1) * STEP_NS
    assert abs(times[-1] - columns["steps"]["time_ns"][-1]) < STEP_NS


def test_first_batches_of_any_number_of_datasets_are_kept_within_bound() -> None:
    evidence = Evidence()
    batch = msgspec.structs.replace(samples.sharding(0), indices=None)
    for dataset in (*[0] * 10_000, *range(1, 10_000)):  # a long epoch, then one made for each
        evidence.add([msgspec.structs.replace(batch, dataset=dataset), samples.step(dataset)])
    kept = evidence.columns()["first_batches"]
    assert (len(kept[0]), len(kept[1])) == (500, 1)
    assert len(kept) < 9_000
