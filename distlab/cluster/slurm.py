"""SlurmClusterResolver: the cluster is the Slurm step that srun started."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import final

from distlab.cluster import _gpus
from distlab.cluster.resolver import ClusterResolver
from distlab.cluster.spec import ClusterSpec
from distlab.errors import ClusterError, ClusterSpecError

_ENTRY = r"(?:[^][,]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_LIST = re.compile(rf"{_ENTRY}(?:,{_ENTRY})*,?")  # Slurm accepts a comma at the end
_PIECE = re.compile(r"\[([^][]*)\]|([^][]+)")
_TASKS = re.compile(r"(\d+)(?:\(x([1-9]\d*)\))?", re.ASCII)


@final
class SlurmClusterResolver(ClusterResolver):
    """The tasks of a Slurm step as a cluster, with shares of its GPUs.

    The tasks of a node have successive ports and successive shares of its GPUs.
    Ranks go over the jobs in alphabetical order, and over the nodes as srun
    distributed them, in blocks or cyclically, the nodes in Slurm's order: `n9`
    before `n10`. (TensorFlow assumes blocks and sorts nodes as text, and confuses
    the addresses of tasks otherwise.)

    Make it once in a process and before JAX starts, because it reads
    CUDA_VISIBLE_DEVICES and `cluster_spec()` sets it.

    Example:
      >>> import os
      >>> from unittest import mock
      >>> from distlab.cluster_resolver import SlurmClusterResolver
      >>> step = {  # srun sets these variables
      ...     "SLURM_PROCID": "1",
      ...     "SLURM_STEP_NUM_TASKS": "2",
      ...     "SLURM_STEP_NODELIST": "n[1-2]",
      ...     "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
      ... }
      >>> with mock.patch.dict(os.environ, step):
      ...     resolver = SlurmClusterResolver(gpus_per_node=0)
      >>> resolver.cluster_spec().as_dict(), resolver.get_task_info()
      ({'worker': ['n1:8888', 'n2:8888']}, ('worker', 1))
    """

    def __init__(  # noqa: PLR0917  # the order is TensorFlow's
        self,
        jobs: Mapping[str, int] | None = None,
        port_base: int = 8888,
        gpus_per_node: int | None = None,
        gpus_per_task: int | None = None,
        tasks_per_node: int | Mapping[str, int] | None = None,
        auto_set_gpu: bool = True,
        rpc_layer: str | None = "grpc",
    ) -> None:
        """Reads the Slurm step from the environment.

        Args:
          jobs: Job name to its number of tasks; by default all are workers.
          port_base: The port of the first task of each node.
          gpus_per_node: GPUs of a node; by default as many as CUDA_VISIBLE_DEVICES
            names, or as nvidia-smi lists when it is not set.
          gpus_per_task: GPUs of a task; by default the node's are divided evenly.
          tasks_per_node: One number, or node name to number; by default Slurm's own.
          auto_set_gpu: Whether `cluster_spec()` sets CUDA_VISIBLE_DEVICES to
            this task's share.
          rpc_layer: The protocol in front of addresses.

        Raises:
          ClusterError: The process is outside of a Slurm step, the jobs have more or
            fewer tasks than the step, a node has too few GPUs, or
            srun distributed the tasks neither in blocks nor cyclically.
          ClusterSpecError: One of Slurm's lists can't be read, or a node
            has GPUs but fewer than tasks and `gpus_per_task` is missing.
        """
        self._rank = _number("SLURM_PROCID")
        self._jobs = {"worker": _number("SLURM_STEP_NUM_TASKS")} if jobs is None else dict(jobs)
        tasks = _tasks_by_node(tasks_per_node)
        self._places = _places_by_rank(tasks)
        wanted = sum(self._jobs.values())
        if wanted != len(self._places):
            raise ClusterError(
                f"The jobs {self._jobs} have {wanted} tasks, and the Slurm step has "
                f"{len(self._places)}. Start as many with srun --ntasks, or change jobs=."
            )
        self._port_base = port_base
        self._rpc_layer = rpc_layer
        self._auto_set_gpu = auto_set_gpu
        visible = _gpus.named_by_environment()
        if gpus_per_node is None:
            gpus_per_node = _gpus.count_by_nvidia_smi() if visible is None else len(visible)
        self._gpus_per_task = _share(gpus_per_node, gpus_per_task, max(tasks.values(), default=0))
        # A step without its own cgroup sees all GPUs, and its own by number in
        # CUDA_VISIBLE_DEVICES: those numbers are divided among the tasks.
        named = visible is not None and len(visible) == gpus_per_node
        self._gpu_names = visible if visible and named else list(map(str, range(gpus_per_node)))

    def cluster_spec(self) -> ClusterSpec:
        """Returns the tasks of the step, and determines this process's own.

        Sets `task_type` and `task_id`, which are None before, as in TensorFlow,
        and CUDA_VISIBLE_DEVICES unless `auto_set_gpu` is False or the nodes
        have no GPUs.
        """
        places = self._places
        cluster: dict[str, list[str]] = {}
        start = 0
        for job, count in sorted(self._jobs.items()):
            cluster[job] = [
                f"{node}:{self._port_base + slot}" for node, slot in places[start : start + count]
            ]
            if start <= self._rank < start + count:
                self._task_type, self._task_id = job, self._rank - start
            start += count
        if self._auto_set_gpu and self._gpu_names:
            first = places[self._rank][1] * self._gpus_per_task
            mine = self._gpu_names[first : first + self._gpus_per_task]
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(mine)
        return ClusterSpec(cluster)

    def get_task_info(self) -> tuple[str | None, int | None]:
        """Returns `task_type` and `task_id`, both None before `cluster_spec()` was called."""
        return self.task_type, self.task_id

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the number of GPUs of a task, which is the same for all."""
        del task_type, task_id, config_proto
        return {"GPU": self._gpus_per_task}


def _number(name: str) -> int:
    return int(_variable(name))


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ClusterError(
            f"The environment variable {name}, which Slurm sets in every step, is not set. Start "
            "the program with srun; a job's batch script is not a step."
        )
    return value


def _tasks_by_node(tasks_per_node: int | Mapping[str, int] | None) -> dict[str, int]:
    """Returns the number of tasks on each node, in Slurm's order, which is that of ranks."""
    if isinstance(tasks_per_node, Mapping):
        tasks = dict(tasks_per_node)
    else:
        nodes = expand_hostlist(_variable("SLURM_STEP_NODELIST"))
        counts = (
            expand_tasks_per_node(_variable("SLURM_STEP_TASKS_PER_NODE"))
            if tasks_per_node is None
            else [tasks_per_node] * len(nodes)
        )
        tasks = dict(zip(nodes, counts, strict=True))
    return {node: tasks[node] for node in sorted(tasks, key=in_slurms_order)}


def _places_by_rank(tasks: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns the node of each rank, and its place among that node's tasks."""
    by_node = [(node, slot) for node, count in tasks.items() for slot in range(count)]
    over_nodes = os.environ.get("SLURM_DISTRIBUTION", "").partition(":")[0].lower()
    if over_nodes in ("plane", "arbitrary") and len(tasks) > 1:
        raise ClusterError(
            f"Slurm distributed the tasks over the nodes by {over_nodes!r}, which does not "
            "determine the node of each. Use srun --distribution=block or cyclic, or "
            "SimpleClusterResolver."
        )
    if over_nodes == "cyclic":
        by_node.sort(key=lambda place: place[1])  # stable: nodes stay in their order
    return by_node


def _share(gpus_per_node: int, gpus_per_task: int | None, tasks: int) -> int:
    if gpus_per_task is None:
        gpus_per_task = gpus_per_node // max(tasks, 1)
        if gpus_per_node and not gpus_per_task:
            raise ClusterSpecError(
                f"{tasks} tasks of a node can't divide {gpus_per_node} GPUs evenly. Pass "
                "gpus_per_task=0 to use none; where Slurm already assigns GPUs to each task, "
                "gpus_per_node= with the number in a node and auto_set_gpu=False."
            )
    if tasks * gpus_per_task > gpus_per_node:
        raise ClusterError(
            f"{tasks} tasks of a node with {gpus_per_task} GPUs each need {tasks * gpus_per_task}, "
            f"and a node has {gpus_per_node}. Lower gpus_per_task or the tasks per node."
        )
    return gpus_per_task


def expand_hostlist(hostlist: str) -> list[str]:
    """Expands a Slurm hostlist, in its order; brackets may occur more than once."""
    if not _LIST.fullmatch(hostlist):
        raise ClusterSpecError(
            f'A hostlist has a form such as "n[1-2],m5,o[08-10]", got {hostlist!r}.'
        )
    return [host for entry in re.findall(_ENTRY, hostlist) for host in _expand_entry(entry)]


def expand_tasks_per_node(tasks_per_node: str) -> list[int]:
    """Expands Slurm's task counts."""
    counts: list[int] = []
    for entry in tasks_per_node.split(","):
        match = _TASKS.fullmatch(entry)
        if match is None:
            raise ClusterSpecError(
                f'Tasks per node have a form such as "3(x2),2", got {tasks_per_node!r}.'
            )
        counts.extend([int(match[1])] * int(match[2] or 1))
    return counts


def in_slurms_order(host: str) -> list[tuple[int, str]]:
    """Returns a key that sorts node names as `scontrol show hostlistsorted`: `n9` before `n10`."""
    texts_and_numbers = re.split(r"(\d+)", host)
    return [(len(t) if i % 2 else 0, t) for i, t in enumerate(texts_and_numbers)]


def _expand_entry(entry: str) -> Iterator[str]:
    pieces = [
        [text] if text else list(_expand_brackets(ranges)) for ranges, text in _PIECE.findall(entry)
    ]
    return map("".join, itertools.product(*pieces))


def _expand_brackets(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))
