"""The logger of MLflow: MLflow reads back what it was told, from files."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils import validation

from distlab.errors import ArgumentTypeError, MissingExtraError, NotFiniteWarning
from distlab.integrations.mlflow.logger import metric_name
from distlab.io import decode_png
from distlab.loggers import MLflow
from distlab.recording import RingRecorder, record
from tests.tracking.test_tensorboard import steps_of, train


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """MLflow's client; its files are in the test's folder, also for MLflow's own functions."""
    for name in ("MLFLOW_EXPERIMENT_ID", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    before = mlflow.get_tracking_uri()
    uri = (tmp_path / "mlflow").as_uri()
    mlflow.set_tracking_uri(uri)
    yield mlflow.MlflowClient(uri)
    mlflow.set_tracking_uri(before)


def test_a_run_is_read_back(recorder: RingRecorder, client: Any, tmp_path: Path) -> None:
    logger = MLflow("digits", tags={"team": "a"})
    with record(tmp_path / "first", loggers=[logger]) as run:
        train(run)
    assert logger.run_id is not None
    found = client.get_run(logger.run_id)
    assert client.get_experiment(found.info.experiment_id).name == "digits"
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    assert found.data.tags["team"] == "a"
    assert found.data.tags["distlab.strategy"] == "MirroredStrategy"
    assert found.data.tags["distlab.replicas"] == "3"
    losses = client.get_metric_history(logger.run_id, "loss")
    assert [(metric.step, metric.value) for metric in losses] == [(0, 4575.0), (1, 8190.0)]
    assert found.info.start_time <= losses[0].timestamp <= losses[1].timestamp
    assert losses[1].timestamp <= found.info.end_time
    assert 0 <= found.data.metrics["distlab/busy/CPU:0"] <= 1
    folder = Path(client.download_artifacts(logger.run_id, "distlab"))
    assert "`step` compiled in" in (folder / "programs.md").read_text()
    pictures = sorted(path.name for path in (folder / "batch" / "replica 0").iterdir())
    assert pictures == [f"step-{step:08}.png" for step in steps_of(tmp_path / "first")]
    sheet = decode_png((folder / "batch" / "replica 0" / pictures[0]).read_bytes())
    assert sheet.shape == (4, 9, 1)


def test_many_numbers_arrive_all(recorder: RingRecorder, client: Any) -> None:
    logger = MLflow()
    with record(None, loggers=[logger]) as run:
        for step in range(1_100):
            run.log(step, loss=float(step))
    assert logger.run_id is not None
    history = client.get_metric_history(logger.run_id, "loss")
    assert [metric.step for metric in history] == list(range(1_100))
    assert client.get_run(logger.run_id).info.experiment_id == "0"


def test_the_active_run_is_logged_to_and_left_open(recorder: RingRecorder, client: Any) -> None:
    mlflow.set_experiment("mine")
    with mlflow.start_run() as active:
        with record(None, loggers=[MLflow()]) as run:
            run.log(0, loss=1.0)
        mlflow.log_metric("after", 2.0)
        found = client.get_run(active.info.run_id)
        assert found.info.status == "RUNNING"
    assert client.get_run(active.info.run_id).data.metrics == {"loss": 1.0, "after": 2.0}
    logger = MLflow()  # without an active run it is a new one, in the chosen experiment
    record(None, name="next", loggers=[logger]).close()
    assert logger.run_id is not None
    made = client.get_run(logger.run_id).info
    assert (made.run_name, made.experiment_id) == ("next", active.info.experiment_id)


def test_a_run_may_be_named_by_its_id(recorder: RingRecorder, client: Any) -> None:
    made = client.create_run("0").info.run_id
    for number in range(2):
        with record(None, loggers=[MLflow(run_id=made)]) as run:
            run.log(number, loss=float(number))
    assert [m.value for m in client.get_metric_history(made, "loss")] == [0.0, 1.0]
    assert client.get_run(made).info.status == "RUNNING"


def test_how_the_run_ended_is_its_status(recorder: RingRecorder, client: Any) -> None:
    ends = [("failed", "ValueError: no", "FAILED"), ("interrupted", "", "KILLED")]
    for status, message, expected in ends:
        logger = MLflow()
        record(None, loggers=[logger]).close(status, message)  # type: ignore[arg-type]
        assert logger.run_id is not None
        found = client.get_run(logger.run_id)
        assert (found.info.status, found.data.tags.get("distlab.message", "")) == (
            expected,
            message,
        )


def test_names_and_numbers_of_any_kind_arrive(recorder: RingRecorder, client: Any) -> None:
    logger = MLflow()
    values = {"loss [%]": 1.0, "../up": 3.0, "größe": math.inf}
    with record(None, loggers=[logger]) as run, pytest.warns(NotFiniteWarning):
        run.log(0, **values)
    assert logger.run_id is not None
    found = client.get_run(logger.run_id).data.metrics
    assert found == {"loss ___": 1.0, "__/up": 3.0, "größe": math.inf}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_every_name_becomes_one_that_mlflow_takes(name: str) -> None:
    check: Any = validation._validate_metric_name
    check(metric_name(name))


def test_a_place_that_can_not_be_written_ends_no_training(
    recorder: RingRecorder, client: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    logger = MLflow("digits", tracking_uri=(tmp_path / "file").as_uri())
    run = record(None, loggers=[logger])
    run.log(0, loss=1.0)
    with pytest.warns(RuntimeWarning, match="The logger MLflow raised"):
        run.close()


def test_a_database_that_mlflow_can_not_open_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("distlab.integrations.mlflow.logger.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"sqlalchemy and alembic.*pip install mlflow"):
        MLflow(tracking_uri="sqlite:///mlflow.db")
    MLflow(tracking_uri="file:runs")


def test_without_mlflow_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"distlab\[loggers\]"):
        MLflow()


def test_arguments_of_a_new_run_beside_run_id_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="tags is for a new run"):
        MLflow(run_id="a", tags={"b": "c"})
