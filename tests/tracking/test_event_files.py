"""Event files: TensorBoard reads from them what was written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from distlab.io import decode_png
from distlab.text.png import encode
from distlab.tracking.event_files import EventFile

BEGAN = 1_700_000_000 * 10**9


def read(folder: Path) -> EventAccumulator:
    """Returns all that TensorBoard finds in a folder's newest event file."""
    everything = {"scalars": 0, "tensors": 0, "images": 0}
    accumulator = EventAccumulator(str(folder), size_guidance=everything)
    accumulator.Reload()
    return accumulator


def messages(folder: Path) -> list[Any]:
    (path,) = folder.glob("events.out.tfevents.*")
    return list(LegacyEventFileLoader(str(path)).Load())


@settings(max_examples=20, deadline=None)
@given(
    step=st.integers(0, 2**63 - 1),
    name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    value=st.floats(width=32),
    unix_ns=st.integers(0, 2**62),
)
def test_a_number_is_read_as_it_was_written(
    step: int, name: str, value: float, unix_ns: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    file = EventFile(folder, BEGAN)
    file.scalars(step, {name: value}, unix_ns)
    file.close()
    version, event = messages(folder)
    assert version.file_version == "brain.Event:2"
    assert (event.step, event.wall_time) == (step, unix_ns / 1e9)
    (found,) = event.summary.value
    assert found.tag == name
    assert found.simple_value == value or (math.isnan(value) and math.isnan(found.simple_value))


def test_a_number_beyond_single_precision_is_infinite(tmp_path: Path) -> None:
    file = EventFile(tmp_path, BEGAN)
    file.scalars(0, {"loss": 1e300, "gain": -1e300}, BEGAN)
    file.close()
    values = {value.tag: value.simple_value for value in messages(tmp_path)[1].summary.value}
    assert values == {"loss": math.inf, "gain": -math.inf}


def test_a_text_is_one_of_the_text_plugin(tmp_path: Path) -> None:
    file = EventFile(tmp_path, BEGAN)
    file.text(7, "note", "**größer** | as \U0001f600", BEGAN)
    file.close()
    found = read(tmp_path)
    assert found.SummaryMetadata("note").plugin_data.plugin_name == "text"
    (event,) = found.Tensors("note")
    assert event.step == 7
    assert event.tensor_proto.string_val[0].decode() == "**größer** | as \U0001f600"


@pytest.mark.parametrize("shape", [(5, 3), (4, 6, 3), (2, 2, 4)])
def test_a_picture_has_its_pixels(shape: tuple[int, ...], tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    size = (shape[0], shape[1], shape[2] if len(shape) == 3 else 1)
    file = EventFile(tmp_path, BEGAN)
    file.image(3, "batch", encode(pixels), size, BEGAN)
    file.close()
    (image,) = read(tmp_path).Images("batch")
    assert (image.step, image.height, image.width) == (3, *shape[:2])
    decoded = decode_png(image.encoded_image_string)
    np.testing.assert_array_equal(decoded.reshape(shape), pixels)


def test_every_file_has_a_name_of_its_own(tmp_path: Path) -> None:
    for _ in range(3):
        EventFile(tmp_path, BEGAN).close()
    assert len(list(tmp_path.iterdir())) == 3
