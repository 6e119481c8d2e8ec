"""Events of `fit` that pages and widgets show."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers

import distlab as dl
from distlab.control.loops import loops
from distlab.events import Compile, Copy, Loop, Metric, Placement, Sharding, Step
from distlab.recording import RingRecorder
from tests.integrations.keras.small import FIT, X, Y, mirrored, model


def test_metrics_and_variables_have_keras_names(tmp_path: Path) -> None:
    with dl.record(tmp_path / "run", probe=False):
        with mirrored(2).scope():
            distributed = model()
        history = distributed.fit(X, Y, epochs=2, validation_data=(X, Y), **FIT).history
        evaluated = distributed.evaluate(X, Y, batch_size=20, verbose=0, return_dict=True)
    with dl.Run.open(tmp_path / "run") as run:
        events = list(run.events())
    metrics = [event for event in events if isinstance(event, Metric)]
    batches = [event.values for event in metrics if "loss" in event.values]
    assert len(batches) == 6
    assert batches[0].keys() == {"loss", "accuracy"}
    validation = [event.values["val_loss"] for event in metrics if "val_loss" in event.values]
    assert validation == history["val_loss"]
    assert [e.values["test_loss"] for e in metrics if "test_loss" in e.values] == [
        evaluated["loss"]
    ]
    names = {event.name for event in events if isinstance(event, Placement)}
    assert {variable.path for variable in distributed.variables} <= names
    compiled = {e.function: e.source for e in events if isinstance(e, Compile)}
    for function in ("Sequential.train_step", "Sequential.test_step"):
        assert compiled[function].startswith("test_recording.py:")  # the calls of fit, evaluate
    assert [e.sizes for e in events if isinstance(e, Sharding)][:3] == [[4, 4], [4, 4], [2, 2]]
    steps = [event.examples for event in events if isinstance(event, Step)]
    assert sum(steps) == 4 * 20 + 20


def test_weights_read_each_batch_are_copies(tmp_path: Path) -> None:
    with mirrored(2).scope():
        distributed = model()
    reading = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: read.append(distributed.get_weights())  # noqa: ARG005
    )
    read: list[list[np.ndarray]] = []
    with dl.record(tmp_path / "run", probe=False):
        distributed.fit(X, Y, epochs=3, callbacks=[reading], **FIT)
    assert all(weights.flags.writeable for weights in read[0])
    with dl.Run.open(tmp_path / "run") as run:
        copies = [one for one in run.events("copy") if isinstance(one, Copy)]
    names = [variable.path for variable in distributed.weights]
    assert [one.what for one in copies] == len(read) * names
    assert {one.source.partition(":")[0] for one in copies} == {"test_recording.py"}


@pytest.mark.filterwarnings("ignore::distlab.errors.NotFiniteWarning")
def test_the_replica_whose_loss_is_not_finite_is_named(tmp_path: Path) -> None:
    x, y = np.tile(X, (4, 1)), np.tile(Y, 4)
    x[31] = np.inf  # the last example of the fourth batch is the second replica's
    with mirrored(2).scope():
        distributed = model()
    with dl.record(tmp_path / "run", probe=False):
        distributed.fit(x, y, epochs=1, **FIT)
    with dl.Run.open(tmp_path / "run") as run:
        (one,) = [one for one in run.advice() if one.cause == "not_finite"]
        first = next(one.step for one in run.events("step") if isinstance(one, Step))
    assert one.evidence["replica"] == 1
    assert f"returned at step {first + 3:,} on replica 1, and on no other." in one.text


def test_batch_statistics_of_replicas_are_no_drifting_copies(
    tmp_path: Path,
) -> None:
    with dl.record(tmp_path / "run", probe=False):
        with mirrored(2).scope():
            distributed = model(layers.BatchNormalization())
        distributed.fit(X, Y, epochs=3, **FIT)
    with dl.Run.open(tmp_path / "run") as run:
        assert [one.subject for one in run.advice() if one.cause == "drifting_copies"] == []
        assert not list(run.events("copies"))


def test_a_page_stops_fit_whose_loop_is_recorded(recorder: RingRecorder) -> None:
    with mirrored(2).scope():
        distributed = model()
    positions = []

    def control(batch: int, logs: object) -> None:
        for loop in loops():
            positions.append((batch, loop.name, loop.position))
            loop.stop()

    callbacks = [
        dl.keras.Controlled(name="digits", pause_seconds=5),
        keras.callbacks.LambdaCallback(on_train_batch_end=control),
    ]
    history = distributed.fit(X, Y, epochs=5, callbacks=callbacks, **FIT).history
    assert positions[0] == (0, "digits", 1)
    assert len(history["loss"]) == 1
    assert [loop.state for loop in loops()] == ["stopped"]
    emitted = recorder.ring.since(0).events
    states = [(event.name, event.state) for event in emitted if isinstance(event, Loop)]
    assert states[0] == ("digits", "running")
    assert states[-1][1] in ("done", "stopped")
