"""The pictures of a run take bounded room, whatever number of datasets a program makes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from distlab.events import Preview, Sharding
from distlab.recording.preview_room import PreviewRoom


def kept_bytes(lines: Sequence[str]) -> list[int]:
    """Returns the bytes of pictures that datasets made by these lines keep."""
    room, found = PreviewRoom(), [0] * len(lines)
    for number, line in enumerate(lines):
        assert room.admits(
            Sharding(
                time_ns=0, strategy=0, dataset=number, batch=0, epoch=0, sizes=[], nominal=0,
                indices=None, bytes=0, wait_ns=0, transfer_ns=0, policy="rebatch", source=line,
            )
        )  # fmt: skip
        picture = Preview(
            time_ns=0, dataset=number, batch=None, epoch=0, form="image", shape=[32, 32],
            indices=np.arange(2).tobytes(), data=bytes(2 * 32 * 32), labels=["7"] * 2,
        )  # fmt: skip
        found[number] = sum(len(picture.data) for _ in range(1_600) if room.admits(picture))
    return found


def test_a_dataset_each_epoch_has_some_pictures_in_bounded_room() -> None:
    found = kept_bytes(["train.py:3"] * 40)
    assert 1.9e6 < found[0] < 2.1e6
    assert set(found[1:]) == {2_048}


def test_datasets_of_several_lines_share_the_room() -> None:
    found = kept_bytes([f"train.py:{line}" for line in range(40)])
    assert found[0] > 1.9 * found[1] > 3 * found[2] > 0
    assert min(found) >= 2_048
    assert sum(found) < 4.4e6
