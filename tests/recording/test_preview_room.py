"""The pictures of a run take bounded room, whatever number of datasets a program makes."""

from __future__ import annotations

import numpy as np

from distlab.events import Preview
from distlab.recording.preview_room import PreviewRoom


def test_a_dataset_each_epoch_has_some_pictures_in_bounded_room() -> None:
    room = PreviewRoom()
    previews = [
        Preview(
            time_ns=0, dataset=dataset, batch=None, epoch=0, form="image", shape=[32, 32],
            indices=np.arange(2).tobytes(), data=bytes(2 * 32 * 32), labels=["7"] * 2,
        )
        for dataset in range(40)
        for _ in range(1_600)
    ]  # fmt: skip
    kept = [one for one in previews if room.admits(one)]
    assert {one.dataset for one in kept} == set(range(40))
    assert 5e6 < sum(len(one.data) for one in kept) < 7e6
