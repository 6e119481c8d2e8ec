"""UnionResolver: joins several descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from distlab.cluster.resolver import ClusterResolver, format_master
from distlab.cluster.spec import ClusterSpec, Tasks
from distlab.errors import ArgumentTypeError, ClusterSpecError, DuplicateTaskError
from distlab.text.shown import shown


@final
class UnionResolver(ClusterResolver):
    """The tasks of several resolvers; all other properties are the first one's.

    Example:
      >>> from distlab.cluster_resolver import ClusterSpec, SimpleClusterResolver, UnionResolver
      >>> workers = SimpleClusterResolver(ClusterSpec({"worker": ["a:2222"]}))
      >>> servers = SimpleClusterResolver(ClusterSpec({"ps": ["b:2222"]}))
      >>> UnionResolver(workers, servers).cluster_spec()
      ClusterSpec({'ps': ['b:2222'], 'worker': ['a:2222']})
    """

    def __init__(
        self,
        *args: ClusterResolver,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
        **others: Any,
    ) -> None:
        """Joins resolvers.

        Args:
          *args: The resolvers, at least one.
          task_type: Replaces the first resolver's.
          task_id: Replaces the first resolver's.
          rpc_layer: Replaces the first resolver's.
          **others: Must be empty.

        Raises:
          ClusterSpecError: There is no resolver, or another keyword, as in TensorFlow.
          ArgumentTypeError: An argument is not a resolver.
        """
        if not args or others:
            raise ClusterSpecError(
                "UnionResolver needs at least one resolver, and accepts task_type, task_id and "
                f"rpc_layer, got {len(args)} resolvers and {list(others)}."
            )
        if not all(isinstance(resolver, ClusterResolver) for resolver in args):
            raise ArgumentTypeError(f"UnionResolver joins ClusterResolvers, got {shown(args)}.")
        self._resolvers = args
        self._task_type = task_type
        self._task_id = task_id
        self._rpc_layer = rpc_layer

    def cluster_spec(self) -> ClusterSpec:
        """Returns all tasks of all resolvers.

        Jobs of the same name are joined: lists are concatenated. When one of
        them is a dict from task index to address, all are treated as such.

        Raises:
          DuplicateTaskError: Dicts of the same job share an index.
        """
        parts: dict[str, list[Tasks]] = {}
        for resolver in self._resolvers:
            for job, tasks in resolver.cluster_spec().as_dict().items():
                parts.setdefault(job, []).append(tasks)
        return ClusterSpec({job: _join(job, tasks) for job, tasks in parts.items()})

    def master(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        rpc_layer: str | None = None,
    ) -> str:
        """Returns the address of a task; the first resolver's master when none is named.

        As in TensorFlow a named task's address has the `rpc_layer` of this
        resolver only, never the first one's.

        Raises:
          ClusterSpecError: The cluster has no such task.
        """
        if task_type is not None and task_id is not None:
            address = self.cluster_spec().task_address(task_type, task_id)
            return format_master(address, rpc_layer or self._rpc_layer)
        return self._resolvers[0].master(rpc_layer=rpc_layer)

    def num_accelerators(
        self,
        task_type: str | None = None,
        task_id: int | None = None,
        config_proto: object = None,
    ) -> dict[str, int]:
        """Returns the first resolver's numbers."""
        return self._resolvers[0].num_accelerators(task_type, task_id, config_proto)

    @property
    def environment(self) -> str | None:
        """The first resolver's."""
        return self._resolvers[0].environment

    def _own(self, name: str) -> Any:
        return getattr(self._resolvers[0], name)


def _join(job: str, parts: list[Tasks]) -> Tasks:
    lists = [part for part in parts if isinstance(part, list)]
    if len(lists) == len(parts):
        return [address for part in lists for address in part]
    joined: dict[int, str] = {}
    for part in parts:
        tasks = part if isinstance(part, Mapping) else dict(enumerate(part))
        twice = sorted(joined.keys() & tasks.keys())
        if twice:
            raise DuplicateTaskError(
                f"Job {job!r} has the tasks {twice} in more than one of the joined clusters. "
                "Assign each task an index of its own, or pass all of them as lists."
            )
        joined.update(tasks)
    return joined
