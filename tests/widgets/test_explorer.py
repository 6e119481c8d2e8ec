"""The explorer: choices and their effects."""

from __future__ import annotations

import gc
import re
import weakref
from typing import Any

import jax.numpy as jnp
import pytest

import distlab as dl
from distlab.errors import ArgumentValueError
from distlab.widgets import Explorer, Placement
from distlab.widgets._explorer_widget import _answer
from distlab.widgets._notebook import Execution
from tests.patience import wait_until
from tests.synthetic import ListSource
from tests.widgets.conftest import FakeNotebook
from tests.widgets.test_picture import ALLOWED, tags_of


def opened(**choices: Any) -> Explorer:
    return dl.widgets.explorer(**choices)


def page(explorer: Explorer) -> Any:
    assert explorer._widget is not None
    return explorer._widget


def sizes_of(html: str) -> list[str]:
    return re.findall(r"<span style='[^']*'>([^<]*)</span>", html)


def test_a_choice_is_answered_and_left_in_the_notebook(notebook: FakeNotebook) -> None:
    explorer = opened(replicas=4, batch=6, examples=11)
    shown = page(explorer)
    assert sizes_of(shown.picture) == ["2", "2", "2", "2", "2", "1 of 2", "empty", "empty"]
    assert "from example 6 on" in shown.picture
    assert "Step 1 (last)" in shown.picture
    _answer(shown, {"kind": "choose", "name": "replicas", "value": 16}, [])
    assert shown.chosen["replicas"] == 16
    assert sizes_of(shown.picture)[8:13] == ["1", "1", "1", "empty", "empty"]
    assert sizes_of(notebook.newest()["text/html"]) == sizes_of(shown.picture)
    assert "11 examples, batches of 6, over 16 replicas: 2 steps" in notebook.newest()["text/plain"]


def test_the_variable_and_its_reduction_follow_the_shape(notebook: FakeNotebook) -> None:
    explorer = opened(replicas=8, shape=(10,))
    explorer.choose("shape", "1000, 1000")
    shown = page(explorer).picture
    assert "takes 4.00 MB: a whole copy on each of 8 devices, 32.0 MB in all." in shown
    assert "7.00\u00a0MB" in shown  # a ring's 2 * 7 / 8
    assert "14\u00a0\u00d7\u00a0collective-permute" in shown
    explorer.choose("strategy", "CentralStorageStrategy")
    assert "one copy on one device, 4.00 MB in all." in page(explorer).picture


def test_an_invalid_choice_shows_its_error_and_changes_nothing(notebook: FakeNotebook) -> None:
    explorer = opened()
    shown, before, answered = page(explorer), explorer.choices, page(explorer).answered
    invalid: tuple[tuple[str, Any, str], ...] = (
        ("replicas", 17, "replicas must be a whole number from 1 to 16, got 17"),
        ("shape", "<img src=x>", "got &#x27;&lt;img src"),
        ("policy", ["OFF"], "policy must be one of"),
        ("__class__", 1, "There is no choice named"),
    )
    for done, (name, value, message) in enumerate(invalid, 1):
        _answer(shown, {"kind": "choose", "name": name, "value": value}, [])
        assert explorer.choices == before
        assert message in shown.picture
        assert shown.answered == answered + done
    strange: list[dict[str, object]] = [{}, {"kind": "choose"}, {"kind": "press", "loop": 1}]
    for content in strange:
        _answer(shown, content, [])
        assert shown.answered == answered + len(invalid)
    with pytest.raises(ArgumentValueError, match="Choose 4"):
        opened(strategy="MultiWorkerMirroredStrategy", replicas=3)


def test_sanitizers_let_every_picture_pass(notebook: FakeNotebook) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"policy": "FROM FUNCTION"}, "each replica&#x27;s batches of 64"),
        ({"strategy": "MultiWorkerMirroredStrategy"}, "over 8 replicas of 2 workers"),
        ({"strategy": "OneDeviceStrategy"}, "over 1 replica: "),
        ({"batch": 2000, "examples": 2000, "replicas": 16}, "2\u202f000 examples"),
        ({"shape": ()}, "float32[] takes 4 B"),
    )
    for choices, text in cases:
        shown = page(opened(**choices)).picture
        assert text in shown
        assert {name for name, _ in tags_of(shown)} <= ALLOWED


def test_executing_the_cell_again_closes_it(notebook: FakeNotebook) -> None:
    first = opened()
    notebook.execution = Execution("cell 1", "request 2")
    second = opened()
    assert [first.live, second.live] == [False, True]
    Placement(ListSource([]))
    second.close()
    second.close()
    assert "examples, batches of" in notebook.outputs[second._host][-1]["text/plain"]


def test_a_closed_explorer_is_garbage(notebook: FakeNotebook) -> None:
    explorer = opened()
    gone: list[weakref.ref[Any]] = [weakref.ref(explorer), weakref.ref(page(explorer))]
    explorer.close()
    del explorer
    wait_until(lambda: gc.collect() >= 0 and all(ref() is None for ref in gone))


def test_a_script_prints_text(capsys: pytest.CaptureFixture[str]) -> None:
    explorer = opened(replicas=3, batch=7, examples=7)
    assert not explorer.live
    text = capsys.readouterr().out.splitlines()
    assert text[0].startswith("7 examples, batches of 7, over 3 replicas: 1 step,")
    assert "  Step 0 (last): 3, 3, 1 of 3" in text


def test_the_second_tab_simulates_a_step_that_ran(notebook: FakeNotebook) -> None:
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1"])

    def doubled_step(x: Any) -> Any:
        return dl.get_replica_context().all_reduce("SUM", x)

    strategy.run(doubled_step, (jnp.zeros(100),))
    explorer = opened()
    shown = page(explorer)
    _answer(shown, {"kind": "choose", "name": "about", "value": "a step that ran"}, [])
    names = [control["name"] for control in shown.controls]
    assert names == ["about", "step", "sizes"]
    assert "doubled_step" in shown.controls[1]["options"]
    wait_until(lambda: "Compiling" not in shown.picture)
    _answer(shown, {"kind": "choose", "name": "sizes", "value": "4, <b>"}, [])
    assert "Numbers of replicas are like 16, 64, got &#x27;4, &lt;b" in shown.picture
    explorer.choose("step", "doubled_step")
    explorer.choose("sizes", "4")
    wait_until(lambda: "all-reduce\u00a0600\u00a0B" in shown.picture)
    assert {name for name, _ in tags_of(shown.picture)} <= ALLOWED
    assert "all-reduce 600 B" in notebook.newest()["text/plain"]
    explorer.choose("about", "batches and a variable")
    assert "300 examples" in shown.picture
    explorer.close()
