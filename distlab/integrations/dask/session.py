"""A worker's side of a session: the closures, variables and datasets of one coordinator."""

from __future__ import annotations

import importlib
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, final

from distributed.core import Server

from distlab.coordinator.closures import call
from distlab.errors import ClusterError
from distlab.integrations.dask import pickling
from distlab.integrations.dask.closures import MOST_FUNCTIONS
from distlab.integrations.dask.connection import event_loop
from distlab.integrations.dask.pickling import Frames, loaded, pickled
from distlab.integrations.dask.servers import BufferedValues
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.variables.remote_storage import Key, RemoteStorage
from distlab.variables.server_traffic import WorkerTraffic
from distlab.variables.variable import Variable, linked


class _LackingError(Exception):
    """The worker has not what a closure refers to by this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@final
class WorkerSession:
    """The closures of one coordinator in this process (`RemoteTasks`)."""

    def __init__(
        self,
        name: str,
        node: Server,
        *,
        number: int,
        workers: int,
        servers: Sequence[str],
        paths: Sequence[str],
        module: str,
    ) -> None:
        sys.path += [path for path in paths if path not in sys.path]
        importlib.import_module(module)
        self._name = name
        self._number = number
        self._traffic = WorkerTraffic()
        address_of = list(servers).__getitem__
        self.values = BufferedValues(name, node.rpc, event_loop(node), address_of, self._traffic)
        self.workers = workers
        self.servers = tuple(f"ps {n}" for n in range(len(servers)))
        self.strategy = ParameterServerStrategy.in_worker(self, number)
        self._variables: dict[Key, Variable] = {}
        self._recipes: dict[int, Frames] = {}
        self._kept: dict[int, Any] = {}
        self._functions: deque[int] = deque()
        pickling.sessions[name] = self

    def run(
        self, fn: int, args: Sequence[Frames | None], recipes: Mapping[int, Frames]
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Runs closures of a function in the calling thread.

        Returns the answer of each up to the first that needs what is not here, and its number.
        """
        self._recipes.update(recipes)
        answers: list[dict[str, Any]] = []
        with self.strategy.as_worker(self._number):
            try:
                for given in args:
                    answers.append(self._answer(fn, given))  # noqa: PERF401 - an error keeps these
            except _LackingError as lacking:
                return answers, lacking.number
        return answers, None

    def _answer(self, number: int, args: Frames | None) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        began = time.perf_counter()
        try:
            fn, lists = self._function(number)
            given, named = ((), {}) if args is None else loaded(args)
            lists.remember()
            try:
                result = call(fn, given, named, self._number)
                answer["result"] = self._frames("The result of a closure", result)
            finally:
                self.values.flush()
                appended = lists.appended()
                if appended:
                    answer["appended"] = self._frames("What a closure appended", appended)
        except _LackingError:
            raise
        except BaseException as error:  # noqa: BLE001 - the coordinator raises it
            answer["error"] = self._error(error)
        answer["seconds"] = time.perf_counter() - began
        answer["traffic"] = self._traffic.take()
        return answer

    def variable(self, key: Key, about: dict[str, Any]) -> Variable:
        """Returns this process's variable for a value on a parameter server."""
        known = self._variables.get(key)
        if known is None:
            storage = RemoteStorage(self.values, key, about["name"])
            known = self._variables[key] = linked(self.strategy, storage, about)
        return known

    def kept(self, number: int) -> Any:
        """Returns a function, dataset or iterator, made when first asked for."""
        if number not in self._kept:
            if number not in self._recipes:
                raise _LackingError(number)
            make, source = loaded(self._recipes[number])
            self._kept[number] = make(source)
            del self._recipes[number]
        return self._kept[number]

    def _function(self, number: int) -> Any:
        if number not in self._kept:
            self.kept(number)
            self._functions.append(number)
            if len(self._functions) > MOST_FUNCTIONS:
                del self._kept[self._functions.popleft()]
        return self._kept[number]

    def close(self) -> None:
        """Forgets everything."""
        if pickling.sessions.get(self._name) is self:  # else the coordinator has come back
            del pickling.sessions[self._name]

    def _frames(self, what: str, value: Any) -> Frames | None:
        return None if value is None else pickled(self._name, what, value, {})

    def _error(self, error: BaseException) -> Frames | None:
        """Returns an error as bytes; one that can't be pickled by its text."""
        try:
            frames = self._frames("An error", error)
            assert frames is not None
            loaded(frames)
        except Exception:  # noqa: BLE001 - whatever a class of others does
            frames = self._frames("An error", ClusterError(f"{type(error).__name__}: {error}"))
        return frames
