"""The first notebook, executed without any page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nbconvert import HTMLExporter

import distlab as dl
from distlab.events import Metric, Sharding
from tests.notebooks.executed import path_of, pictures, text_of

NAME = "01_first_steps"
NOTEBOOK = path_of(NAME)


def test_it_learns_and_the_recorded_loss_falls(executed: Any, folder: Path) -> None:
    said = text_of(executed, "score")
    found = re.search(r"([\d.]+)% of 360 digits", said)
    assert found is not None
    assert float(found[1]) > 80
    run = dl.Run.open(folder / "runs" / "first")
    losses = [event.values["loss"] for event in run.events("metric") if isinstance(event, Metric)]
    assert len(losses) == 5 * 23
    assert losses[0] == pytest.approx(np.log(10), abs=1e-3)
    assert np.mean(losses[-23:]) < 0.5 * losses[0]


def test_pictures_show_the_sizes_that_were_recorded(executed: Any, folder: Path) -> None:
    run = dl.Run.open(folder / "runs" / "first")
    sizes = [event.sizes for event in run.events("sharding") if isinstance(event, Sharding)]
    live, uneven, last = pictures(executed)
    for picture, number in ((live, 114), (uneven, 22), (last, 114)):
        text = picture["text/plain"]
        assert f"Batch {number} (of 115 so far, from 0): 29 examples" in text
        shown = re.findall(r"^  CPU:\d +(\d) of 8", text, re.MULTILINE)
        assert [int(size) for size in shown] == sizes[number] == [4, 4, 4, 4, 4, 4, 4, 1]
        assert picture["text/html"].count("<img") == 17  # those of the examples, and the loss


def test_each_variable_is_on_each_device(executed: Any) -> None:
    said = text_of(executed, "where").splitlines()
    assert len(said) == 8
    assert len({line.split()[0] for line in said}) == 8
    assert all("2,560 bytes" in line for line in said)


def test_a_reader_without_a_kernel_sees_the_pictures(executed: Any) -> None:
    page, _ = HTMLExporter().from_notebook_node(executed)
    assert page.count('class="distlab-watch') == 3
    assert '<script type="application/vnd.jupyter.widget-view+json">' not in page
