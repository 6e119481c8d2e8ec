"""The notebook about meshes in plain JAX: what each idiom moves, to the byte."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distlab as dl
from distlab.events import Compile, Metric, Sharding, Step
from tests.notebooks.executed import html_of, pictures, text_of

NAME = "11_your_own_mesh"
STEPS = 60
GRADIENTS = 4 * (256 * 512 + 512 + 512 * 16 + 16 + 1)  # and the loss
SENT = {
    "data parallel": {"data": GRADIENTS * 2 * 7 // 8},
    "tensor parallel": {"model": 2_048, "data": 419_430},
    "FSDP, annotated": {"data": 1_503_663},
    "FSDP, by hand": {"data": GRADIENTS * 2 * 7 // 8},
    "ring attention": {"seq": 2_490_374, "data": 262_148},
    "pipeline": {"stage": 188_416, "data": 65_540},
    "experts": {"expert": 89_607},
}


def test_each_idiom_sends_its_bytes_along_its_axes(executed: Any) -> None:
    lines = text_of(executed, "summary").splitlines()
    found = {
        line[:16].rstrip(): ast.literal_eval(line[16:].partition("}")[0] + "}") for line in lines
    }
    assert found == SENT
    assert text_of(executed, "change").splitlines()[0] == "{'model': 6144, 'data': 139844}"


def test_tables_have_what_the_words_point_at(executed: Any) -> None:
    """What is sent, along which axis and for what, and the bytes of a device."""
    said = {
        "data-program": ["all-reduce  1      559 kB   979 kB  data  XLA       gradients of b1"],
        "tensor-program": ["2.05 kB  2.05 kB  model  XLA       activations"],
        "fsdp-program": ["gradients of b1, b2, w1 and 1 more; 559 kB then sliced", "whole w1"],
        "by-hand": ["reduce-scatter  1      524 kB   459 kB   data  the program  gradients of w1"],
        "ring": ["131 kB   131 kB  seq +1  the program", "131 kB   131 kB  seq -1  the program"],
        "pipeline": ["11     4.10 kB  4.10 kB  stage +1", "11     4.10 kB  4.10 kB  stage -1"],
        "experts": ["all-to-all  1      32.8 kB", "gradients of gate"],
        "data-placed": ["559 kB a device; a whole copy on each of 8 devices"],
        "tensor-placed": ["280 kB a device; 2 blocks, 4 copies of each along data"],
        "fsdp-placed": ["69.9 kB a device; 8 blocks, one on each device"],
    }
    for cell, texts in said.items():
        shown = text_of(executed, cell)
        assert [text for text in texts if text not in shown] == [], shown
        assert "<table" in html_of(executed, cell)


def test_an_observed_loop_learns_and_is_recorded(executed: Any, folder: Path) -> None:
    with dl.Run.open(folder / "runs" / "mesh") as run:
        events = list(run.events())
    assert len([one for one in events if isinstance(one, Step)]) == STEPS
    losses = [one.values["loss"] for one in events if isinstance(one, Metric)]
    assert len(losses) == STEPS
    assert losses[0] == pytest.approx(np.log(16), abs=0.5)
    assert losses[-1] < 0.7 * losses[0]
    placed = {
        (str(one.mesh), str(one.spec), *one.shape) for one in events if isinstance(one, Sharding)
    }
    assert placed == {("{'data': 8}", "[['data'], []]", 128, 256)}
    watched, tensor = (view["text/plain"] for view in pictures(executed))
    assert f"Batch {STEPS - 1} (of {STEPS} so far, from 0): 128 examples over 8 parts" in watched
    assert f"all-reduce inside step along data: {STEPS} times 559 kB" in watched
    assert f"Batch {STEPS - 1} (of {STEPS} so far, from 0): 128 examples over 4 parts" in tensor
    assert f"all-reduce inside step along data: {STEPS} times 280 kB" in tensor
    assert f"all-reduce inside step along model: {STEPS} times 2.05 kB" in tensor


def test_an_uncommitted_state_is_compiled_twice(executed: Any) -> None:
    first, second = text_of(executed, "why").splitlines()
    assert first.endswith(" s: new function")
    assert "params['b1']: uncommitted -> P(); " in second
    assert text_of(executed, "why-fixed") == "['train_step']\n"


def test_code_without_observe_has_its_programs_read(executed: Any, folder: Path) -> None:
    assert text_of(executed, "every-program").startswith("step expert_step pipeline_step\n")
    assert "each device sends 3.59 kB (along expert)" in html_of(executed, "every-program")
    with dl.Run.open(folder / "runs" / "programs") as run:
        programs = [one for one in run.events("compile") if isinstance(one, Compile)]
        assert run.summary()["steps"] == 0
    moved = {one.function: {axis for c in one.collectives for axis in c.axes} for one in programs}
    assert moved == {
        "step": {"data", "model"},
        "expert_step": {"expert"},
        "pipeline_step": {"stage", "data"},
    }
