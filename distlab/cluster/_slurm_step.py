"""The Slurm step that this task belongs to, from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from distlab.cluster.hostlist import expand_hostlist, expand_tasks_per_node, in_slurms_order
from distlab.errors import ArgumentTypeError, ClusterError, ClusterSpecError
from distlab.text.shown import shown


def own_rank() -> int:
    """Returns the number of this task in its step, from 0."""
    return _number("SLURM_PROCID")


def number_of_tasks() -> int:
    """Returns the number of tasks of the step."""
    return _number("SLURM_STEP_NUM_TASKS")


def own_node() -> str | None:
    """Returns the name of the node this task runs on; None when Slurm did not set it."""
    return os.environ.get("SLURMD_NODENAME")


def tasks_by_node(tasks_per_node: int | Mapping[str, int] | None) -> dict[str, int]:
    """Returns the number of tasks on each node, in the order of their ranks."""
    if isinstance(tasks_per_node, Mapping):
        tasks = dict(tasks_per_node)
    else:
        nodes = expand_hostlist(_variable("SLURM_STEP_NODELIST"))
        tasks = dict(zip(nodes, _counts(tasks_per_node, nodes), strict=True))
    for node, count in tasks.items():
        require_count(f"tasks_per_node of {node}", count)
    # Ranks go over the nodes in Slurm's order, whichever order a dict has.
    return {node: tasks[node] for node in sorted(tasks, key=in_slurms_order)}


def places_by_rank(tasks: Mapping[str, int]) -> list[tuple[str, int]]:
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


def require_count(what: str, value: object) -> None:
    """Raises unless `value` is a whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"{what} must be a whole number, got {shown(value)}.")
    if value < 0:
        raise ClusterSpecError(f"{what} must be 0 or more, got {value}.")


def _counts(tasks_per_node: int | None, nodes: list[str]) -> list[int]:
    if tasks_per_node is not None:
        require_count("tasks_per_node", tasks_per_node)
        return [tasks_per_node] * len(nodes)
    counts = expand_tasks_per_node(_variable("SLURM_STEP_TASKS_PER_NODE"))
    if len(counts) != len(nodes):
        raise ClusterError(
            f"SLURM_STEP_NODELIST names {len(nodes)} nodes and SLURM_STEP_TASKS_PER_NODE has "
            f"task counts for {len(counts)}. Pass tasks_per_node=."
        )
    return counts


def _number(name: str) -> int:
    text = _variable(name)
    if not text.isdecimal():
        raise ClusterError(f"{name} must be a whole number from 0, got {text!r}.")
    return int(text)


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        where = (
            "A Slurm job's batch script is not a step: start the program with srun."
            if "SLURM_JOB_ID" in os.environ
            else "Start the program with srun."
        )
        raise ClusterError(
            f"The environment variable {name}, which Slurm sets in every step, is not set. {where}"
        )
    return value
