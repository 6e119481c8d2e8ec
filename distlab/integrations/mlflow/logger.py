"""`MLflow`: a logger that writes to an MLflow run."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from distlab.errors import ArgumentTypeError, MissingExtraError
from distlab.text.png import encode
from distlab.text.shown import shown
from distlab.tracking.logger import Logger, RunFacts

_MOST_AT_ONCE: Final = 1_000
"""The most metrics that MLflow takes in one request."""

_LONGEST: Final = 250
_NOT_TAKEN: Final = re.compile(r"[^\w\-. :/]")
_MOST_TEXTS: Final = 1_000
_DATABASES: Final = ("sqlite", "postgresql", "mysql", "mssql")
_STATUS: Final = {
    "finished": "FINISHED",
    "stopped": "FINISHED",
    "failed": "FAILED",
    "interrupted": "KILLED",
}


class MLflow(Logger):
    """Logs to MLflow: numbers as metrics, facts as tags, texts and pictures as artifacts.

    By default it logs to the run that is active in the thread that makes it, as after
    `mlflow.start_run()`, and leaves that open. Without an active run it makes one, which ends with
    the recording. Characters in a metric's name that MLflow refuses become `_`.

    Args:
      experiment: Name of the experiment of a new run, made when missing; by default the one that
        `mlflow.set_experiment` chose.
      run_name: Name of a new run; by default that of the recording.
      run_id: A run to log to, which is left open.
      tracking_uri: Where the runs are; by default where MLflow has them.
      tags: Tags of a new run.

    Attributes:
      run_id: The run that is logged to; None before a new one is made.

    Raises:
      ArgumentTypeError: An argument belongs to a new run while `run_id` names one.
      MissingExtraError: MLflow is not installed, or the part of it that keeps runs in a database.

    Example:
      >>> import distlab as dl, os
      >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
      >>> logger = dl.loggers.MLflow(experiment="digits", tracking_uri="file:runs")
      >>> with dl.record(None, name="first", loggers=[logger]) as recording:
      ...     recording.log(3, loss=0.5)
      >>> from mlflow import MlflowClient
      >>> run = MlflowClient("file:runs").get_run(logger.run_id)
      >>> run.info.run_name, run.info.status, run.data.metrics["loss"]
      ('first', 'FINISHED', 0.5)
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        run_name: str | None = None,
        run_id: str | None = None,
        tracking_uri: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        of_new = {"experiment": experiment, "run_name": run_name, "tags": tags}
        mine = [name for name, value in of_new.items() if value]
        if run_id is not None and mine:
            raise ArgumentTypeError(
                f"{mine[0]} is for a new run, and run_id names one that exists. Leave one of them "
                "out."
            )
        mlflow = _mlflow()
        _require_store(tracking_uri or mlflow.get_tracking_uri())
        self._experiment = experiment
        self._run_name = run_name
        self._uri = tracking_uri
        self._tags = dict(tags or {})
        active = None if run_id or mine or tracking_uri else mlflow.active_run()
        self.run_id = run_id if active is None else active.info.run_id
        self._own = self.run_id is None
        self._client: Any = None
        self._metrics: list[Any] = []
        self._texts: dict[str, list[str]] = {}
        self._changed: set[str] = set()

    def start(self, run: RunFacts) -> None:
        """Makes the run, or finds the one that was named."""
        self._client = _mlflow().MlflowClient(tracking_uri=self._uri)
        self._texts.clear()
        if not self._own:
            self._client.get_run(self.run_id)
            return
        made = self._client.create_run(
            self._experiment_id(),
            start_time=run.unix_ns // 1_000_000,
            run_name=self._run_name or run.name or None,
            tags=self._tags,
        )
        self.run_id = made.info.run_id

    def log_facts(self, facts: Mapping[str, str]) -> None:
        """Sets tags, such as `distlab.strategy`."""
        entities = _mlflow().entities
        tags = [entities.RunTag(f"distlab.{name}", text) for name, text in facts.items()]
        self._client.log_batch(self.run_id, tags=tags)

    def log_scalars(self, step: int, values: Mapping[str, float], unix_ns: int) -> None:
        """Collects metrics, and passes them on by the thousand."""
        metric = _mlflow().entities.Metric
        self._metrics += [
            metric(metric_name(name), value, unix_ns // 1_000_000, step)
            for name, value in values.items()
        ]
        if len(self._metrics) >= _MOST_AT_ONCE:
            self._send()

    def log_text(self, step: int, name: str, text: str, unix_ns: int) -> None:
        """Adds a line to the artifact of a name, such as `distlab/advice.md`."""
        del unix_ns
        lines = self._texts.setdefault(name, [])
        lines.append(f"- step {step}: {text}")
        del lines[:-_MOST_TEXTS]
        self._changed.add(name)

    def log_images(
        self, step: int, images: Mapping[str, npt.NDArray[np.uint8]], unix_ns: int
    ) -> None:
        """Stores pictures as artifacts, such as `distlab/batch/replica 0/step-00000005.png`."""
        del unix_ns
        with tempfile.TemporaryDirectory() as folder:
            for name, pixels in images.items():
                path = Path(folder, name, f"step-{step:08}.png")
                path.parent.mkdir(parents=True)
                path.write_bytes(encode(pixels))
            self._client.log_artifacts(self.run_id, folder)

    def flush(self) -> None:
        """Passes on what was collected."""
        self._send()
        changed, self._changed = self._changed, set()
        for name in changed:
            self._client.log_text(self.run_id, "\n".join([*self._texts[name], ""]), f"{name}.md")

    def finish(self, status: str, message: str) -> None:
        """Ends a run that this logger made."""
        if message:
            self._client.set_tag(self.run_id, "distlab.message", message)
        if self._own:
            end_ms = time.time_ns() // 1_000_000
            self._client.set_terminated(self.run_id, _STATUS.get(status), end_time=end_ms)

    def _send(self) -> None:
        metrics, self._metrics = self._metrics, []
        for first in range(0, len(metrics), _MOST_AT_ONCE):
            part = metrics[first : first + _MOST_AT_ONCE]
            self._client.log_batch(self.run_id, metrics=part)

    def _experiment_id(self) -> str:
        """Returns the experiment of a new run; makes one that is named and missing."""
        name = self._experiment
        if name is None:  # `set_experiment` leaves it in the environment
            chosen = os.environ.get("MLFLOW_EXPERIMENT_ID")
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME")
            if chosen or not name:
                return chosen or "0"
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)


def metric_name(name: str) -> str:
    """Returns a name as MLflow takes it: letters, digits, `_ - . : /`, no way out of a folder."""
    parts = [part for part in _NOT_TAKEN.sub("_", name).split("/") if part]
    plain = "/".join("_" * len(part) if part in {".", ".."} else part for part in parts)
    return plain[:_LONGEST].rstrip("/") or "_"


def _require_store(uri: str) -> None:
    """Checks that MLflow can open the place where it keeps its runs."""
    kind = uri.partition(":")[0].partition("+")[0]
    missing = [name for name in ("sqlalchemy", "alembic") if find_spec(name) is None]
    if kind in _DATABASES and missing:
        raise MissingExtraError(
            f"MLflow's runs are in a database, {shown(uri)}, which it opens with "
            f"{' and '.join(missing)}. Install all of MLflow: pip install mlflow. Or pass "
            "tracking_uri=, the address of a server."
        )


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError as error:
        raise MissingExtraError(
            "This logger writes with MLflow, which is not installed. Install it with: pip install "
            '"distlab[loggers]".'
        ) from error
    return mlflow
