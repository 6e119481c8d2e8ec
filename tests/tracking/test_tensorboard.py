"""Runs for TensorBoard, live and recorded: TensorBoard reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import RecordError
from distlab.events import Error, Metric, Sharding, Step
from distlab.io import decode_png
from distlab.recording import RingRecorder, Run, record
from distlab.runs.run_file import RunFile
from tests.recording import samples
from tests.runs.test_several_processes import begin
from tests.tracking.test_event_files import messages, read


def train(run: dl.recording.Recording) -> None:
    """Takes two steps on three replicas, the second with a batch that is not full."""
    strategy = dl.MirroredStrategy(["CPU:0", "CPU:1", "CPU:2"])
    images = np.arange(10 * 16, dtype=np.uint8).reshape(10, 4, 4)
    dataset = dl.data.Dataset.from_tensor_slices((images, np.arange(10))).batch(6)

    def step(image: Any, label: Any) -> Any:
        total = jnp.sum(image.astype(jnp.float32)) + jnp.sum(label)
        return dl.get_replica_context().all_reduce("SUM", total)

    for number, batch in enumerate(strategy.experimental_distribute_dataset(dataset)):
        results = strategy.run(step, args=batch)
        run.log(number, loss=strategy.experimental_local_results(results)[0], rate=0.1)


def steps_of(folder: Path) -> list[int]:
    """Returns the numbers of a run's steps, which count in this process."""
    with Run.open(folder) as run:
        return [event.step for event in run.events("step") if isinstance(event, Step)]


def contents(folder: Path) -> list[tuple[float, int, list[Any]]]:
    return [(e.wall_time, e.step, list(e.summary.value)) for e in messages(folder)]


def test_a_live_run_and_the_recorded_one_give_the_same_file(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    with record(tmp_path / "run", tensorboard=tmp_path / "live") as run:
        train(run)
    with Run.open(tmp_path / "run") as recorded:
        assert recorded.to_tensorboard(tmp_path / "later") == tmp_path / "later"
    assert contents(tmp_path / "live") == contents(tmp_path / "later")


def test_tensorboard_reads_scalars_texts_and_batches(
    recorder: RingRecorder, tmp_path: Path
) -> None:
    with record(tmp_path / "run", tensorboard=tmp_path / "logs") as run:
        train(run)
    found = read(tmp_path / "logs")
    steps = steps_of(tmp_path / "run")
    images = np.arange(10 * 16, dtype=np.uint8).reshape(10, 4, 4)
    sums = [images[:6].sum() + 15.0, images[6:].sum() + 30.0]
    assert [(e.step, e.value) for e in found.Scalars("loss")] == list(enumerate(sums))
    assert [e.value for e in found.Scalars("rate")] == [np.float32(0.1)] * 2
    assert found.Scalars("distlab/steps_per_second")[-1].value > 0
    assert 0 <= found.Scalars("distlab/busy/CPU:2")[-1].value <= 1
    facts = found.Tensors("distlab/run")[-1].tensor_proto.string_val[0].decode()
    assert "| strategy | MirroredStrategy |" in facts
    assert "| replicas | 3 |" in facts
    assert "`step` compiled in" in "".join(
        text.decode()
        for event in found.Tensors("distlab/programs")
        for text in event.tensor_proto.string_val
    )
    first, second = found.Images("distlab/batch/replica 1")
    sheet = decode_png(first.encoded_image_string)[..., 0]
    np.testing.assert_array_equal(sheet, np.hstack([images[2], np.zeros((4, 1)), images[3]]))
    np.testing.assert_array_equal(
        decode_png(second.encoded_image_string)[..., 0],
        np.hstack([images[8], np.zeros((4, 1)), images[9]]),
    )
    assert [first.step, second.step] == steps
    third = found.Images("distlab/batch/replica 2")
    assert [event.step for event in third] == steps[:1]  # then it had none


def test_a_run_without_an_end_is_written_as_far_as_it_came(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "written", "a run")
    file.write([begin(0, 5), Metric(time_ns=6, step=0, values={"loss": 0.5})])
    killed = shutil.copytree(tmp_path / "written", tmp_path / "killed")
    file.close()
    with Run.open(killed) as run:
        run.to_tensorboard(tmp_path / "logs")
    assert [e.value for e in read(tmp_path / "logs").Scalars("loss")] == [0.5]


def test_each_process_has_a_folder_of_its_own(tmp_path: Path) -> None:
    for process in range(2):
        file = RunFile(tmp_path / "run", "a run", process=process)
        steps = [Metric(time_ns=9, step=0, values={"loss": float(process)})]
        file.write([begin(process, 5), *steps, samples.end()])
        file.close()
    with Run.open(tmp_path / "run") as run:
        run.to_tensorboard(tmp_path / "logs")
    found = [read(tmp_path / "logs" / f"process-{n}").Scalars("loss")[0].value for n in range(2)]
    assert found == [0.0, 1.0]


def test_a_failed_run_says_so(recorder: RingRecorder, tmp_path: Path) -> None:
    run = record(None, tensorboard=tmp_path)
    run.log(3, loss=1.0)
    run.close("failed", "ValueError: no luck")
    (end,) = read(tmp_path).Tensors("distlab/end")
    assert (end.step, end.tensor_proto.string_val[0]) == (3, b"failed: ValueError: no luck")


def test_such_an_event_ends_a_live_log_aloud(recorder: RingRecorder, tmp_path: Path) -> None:
    run = record(tmp_path / "run", tensorboard=tmp_path / "logs")
    run.log(0, loss=0.5)
    recorder.emit(samples.preview(b"\1\2\3"))
    recorder.emit(odd_batch())
    with pytest.warns(RuntimeWarning, match="The logger TensorBoard ended early"):
        run.close()
    with Run.open(tmp_path / "run") as stored:
        (error,) = (e for e in stored.events("error") if isinstance(e, Error))
    assert error.where == "the logger TensorBoard"
    found = read(tmp_path / "logs")
    assert [e.value for e in found.Scalars("loss")] == [0.5]
    (end,) = found.Tensors("distlab/end")
    assert end.tensor_proto.string_val[0] == b"failed: The logger ended early."


def odd_batch() -> Sharding:
    """A batch whose indices are no whole numbers of 8 bytes."""
    return samples.sharding(0, b"odd")


def test_a_folder_that_is_a_file_is_refused(recorder: RingRecorder, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    with pytest.raises(RecordError, match="for TensorBoard can't be created"):
        record(tmp_path / "run", tensorboard=tmp_path / "logs")
    record(tmp_path / "run").close()
    with Run.open(tmp_path / "run") as run, pytest.raises(RecordError, match="can't be created"):
        run.to_tensorboard(tmp_path / "logs")
