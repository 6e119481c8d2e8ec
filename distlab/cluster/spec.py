"""ClusterSpec: the jobs of a cluster, their tasks and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from distlab.errors import ArgumentTypeError, ClusterSpecError
from distlab.text.counts import is_count
from distlab.text.shown import shown

Tasks: TypeAlias = list[str] | dict[int, str]
"""The addresses of a job's tasks: a list, or a dict when indices are missing."""


class ClusterSpec:
    """The processes of a cluster: tasks, grouped into jobs (`tf.train.ClusterSpec`).

    Two are equal when they have the same jobs with the same tasks. As in
    TensorFlow they can't be hashed.

    Example:
      >>> import distlab as dl
      >>> cluster = dl.ClusterSpec({"worker": ["a:2222", "b:2222"], "ps": {3: "c:2222"}})
      >>> cluster.jobs, cluster.num_tasks("worker"), cluster.task_address("worker", 1)
      (['worker', 'ps'], 2, 'b:2222')
      >>> cluster.task_indices("ps"), cluster.job_tasks("ps")
      ([3], [None, None, None, 'c:2222'])
    """

    def __init__(self, cluster: Mapping[str, Any] | ClusterSpec) -> None:
        """Makes a description of a cluster.

        Args:
          cluster: Job name to the addresses of its tasks, usually
            `"host:port"`: a list or tuple, or a dict from task index to
            address when this process need not know all of them. Or another
            `ClusterSpec`.

        Raises:
          ArgumentTypeError: `cluster` has another type, or a job's name or an
            address is not a string.
          ClusterSpecError: A task index is not a whole number from 0.
        """
        jobs: object = cluster._jobs if isinstance(cluster, ClusterSpec) else cluster
        if not isinstance(jobs, Mapping):
            raise ArgumentTypeError(
                "A cluster is a dict from job names to the addresses of their tasks, got "
                f'{_shown(cluster)}. Write ClusterSpec({{"worker": ["host:port", ...]}}).'
            )
        self._jobs: dict[str, dict[int, str]] = {
            _text("A job's name", job): _read_tasks(job, jobs[job]) for job in jobs
        }

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    def num_tasks(self, job_name: str) -> int:
        """Returns the number of tasks of a job.

        Raises:
          ClusterSpecError: There is no such job.
        """
        return len(self._tasks_of(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns the indices of a job's tasks, smallest first.

        Raises:
          ClusterSpecError: There is no such job.
        """
        return sorted(self._tasks_of(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Returns the address of one task.

        Raises:
          ClusterSpecError: There is no such job, or no such task in it.
        """
        tasks = self._tasks_of(job_name)
        if not is_count(task_index) or task_index not in tasks:
            raise ClusterSpecError(
                f"Job {shown(job_name)} has no task {shown(task_index)}; its tasks are "
                f"{sorted(tasks)}. Use one of them."
            )
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Returns the addresses of a job by task index, None where an index is missing.

        Raises:
          ClusterSpecError: There is no such job.
        """
        tasks = self._tasks_of(job_name)
        return [tasks.get(index) for index in range(max(tasks, default=-1) + 1)]

    def as_dict(self) -> dict[str, Tasks]:
        """Returns job name to tasks: a list when no index is missing, otherwise a dict.

        A job without tasks is an empty dict, as in TensorFlow.
        """
        return {job: _plain(tasks) for job, tasks in self._jobs.items()}

    def _tasks_of(self, job_name: Any) -> dict[int, str]:
        if not isinstance(job_name, str) or job_name not in self._jobs:
            raise ClusterSpecError(
                f"The cluster has no job {shown(job_name)}; its jobs are {sorted(self._jobs)}. Use "
                "one of them."
            )
        return self._jobs[job_name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    __hash__ = None  # type: ignore[assignment]  # as in TensorFlow

    def __repr__(self) -> str:
        jobs = sorted(self.as_dict().items())
        return "ClusterSpec({" + ", ".join(f"{job!r}: {tasks!r}" for job, tasks in jobs) + "})"


def _read_tasks(job: str, tasks: object) -> dict[int, str]:
    if isinstance(tasks, list | tuple):
        tasks = dict(enumerate(tasks))
    if not isinstance(tasks, Mapping):
        raise ArgumentTypeError(
            f"The tasks of job {job!r} must be a list of addresses, or a dict from task index to "
            f"address, got {_shown(tasks)}. Write for example ['host:2222']."
        )
    return {
        _index(job, index): _text(f"An address of job {job!r}", tasks[index]) for index in tasks
    }


def _index(job: str, index: Any) -> int:
    # TF_CONFIG is JSON, whose keys are strings: TensorFlow reads "1" as 1.
    number = int(index) if isinstance(index, int) or str(index).isdecimal() else -1
    if number < 0:
        raise ClusterSpecError(
            f"The task indices of job {job!r} must be whole numbers from 0, got {shown(index)}. "
            "Number them from 0."
        )
    return number


def _text(what: str, value: object) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ArgumentTypeError(
            f"{what} must be a string, got {_shown(value)}. Write for example 'host:2222'."
        )
    return value


def _plain(tasks: dict[int, str]) -> Tasks:
    dense = tasks and len(tasks) == max(tasks) + 1
    ordered = {index: tasks[index] for index in sorted(tasks)}
    return list(ordered.values()) if dense else ordered


def _shown(value: object) -> str:
    return f"{shown(value)} of type {type(value).__name__}"
