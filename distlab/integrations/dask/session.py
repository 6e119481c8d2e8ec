"""A worker's side of a session: the closures, variables and datasets of one coordinator."""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, final

import numpy as np
from distributed.core import Server

from distlab.coordinator.closures import call
from distlab.coordinator.remote_datasets import RemoteVariable
from distlab.coordinator.worker_datasets import dataset_of
from distlab.errors import ClusterError, ContextError, ServerLostError
from distlab.integrations.dask import pickling
from distlab.integrations.dask.closures import MOST_FUNCTIONS, CapturedLists
from distlab.integrations.dask.connection import event_loop
from distlab.integrations.dask.pickling import Frames, loaded, pickled
from distlab.integrations.dask.servers import BufferedValues, ServerCalls
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.variables.per_worker import PerWorkerVariable
from distlab.variables.remote_storage import Key, RemoteStorage
from distlab.variables.server_traffic import WorkerTraffic
from distlab.variables.variable import Variable, linked

NO_FUNCTION: Final = "no function"
"""Answer of a worker that does not have a closure's function (any more)."""


@final
class WorkerSession:
    """The closures of one coordinator in this process.

    Attributes:
      strategy: The coordinator's strategy, as it is here.
      values: The variables' values.
      workers: The number of workers.
      servers: The names of the parameter servers.
    """

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
        counted: bool,
    ) -> None:
        sys.path += [path for path in paths if path not in sys.path]
        importlib.import_module(module)
        self._name = name
        self._number = number
        self._traffic = WorkerTraffic() if counted else None
        loop = event_loop(node)
        self.values = BufferedValues(
            ServerCalls(name, node.rpc, loop, list(servers).__getitem__, self._traffic)
        )
        self.workers = workers
        self.servers = tuple(f"ps {n}" for n in range(len(servers)))
        self.strategy = ParameterServerStrategy.in_worker(self, number)
        self._variables: dict[Key, Variable] = {}
        self._recipes: dict[int, Frames] = {}
        self._resources: dict[int, Any] = {}
        self._functions: OrderedDict[int, _Function] = OrderedDict()
        pickling.sessions[name] = self

    def run(self, message: Mapping[str, Any]) -> list[dict[str, Any]] | str:
        """Runs closures of a function in the calling thread, and returns the answer of each."""
        self._recipes.update(message["resources"])
        number, frames = message["fn"], message["frames"]
        if frames is not None:
            self._functions[number] = _Function(frames)
            if len(self._functions) > MOST_FUNCTIONS:
                self._functions.popitem(last=False)
        elif number not in self._functions:
            return NO_FUNCTION
        self._functions.move_to_end(number)
        with self.strategy.as_worker(self._number):
            return [self._answer(self._functions[number], args) for args in message["args"]]

    def _answer(self, function: _Function, args: Frames | None) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        began = time.perf_counter()
        try:
            fn, lists = function.loaded()
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
        except ServerLostError as error:
            answer["lost"] = str(error)
        except BaseException as error:  # noqa: BLE001 - the coordinator raises it
            answer["error"] = self._error(error)
        answer["seconds"] = time.perf_counter() - began
        if self._traffic is not None:
            answer["traffic"] = self._traffic.take()
        return answer

    def variable(self, key: Key, about: dict[str, Any]) -> Variable:
        """Returns this process's variable for a value on a parameter server."""
        known = self._variables.get(key)
        if known is None:
            storage = RemoteStorage(self.values, key, about["name"])
            known = self._variables[key] = linked(self.strategy, storage, about)
        return known

    def resource(self, number: int) -> Any:
        """Returns a dataset, an iterator or a per-worker variable, made when first asked for."""
        if number not in self._resources:
            kind, source = loaded(self._recipes[number])
            match kind:
                case "dataset":
                    made = dataset_of(source)
                case "iterator":
                    made = iter(source)
                case _:
                    made = self._own_variable(number, *source)
            self._resources[number] = made
        return self._resources[number]

    def own_value(self, number: int) -> np.ndarray | None:
        """Returns the value of a per-worker variable; None when no closure has used it here."""
        variable = self._resources.get(number)
        return None if variable is None else variable.numpy()

    def close(self) -> None:
        """Forgets everything."""
        if pickling.sessions.get(self._name) is self:  # else the coordinator has come back
            del pickling.sessions[self._name]

    def _own_variable(
        self, number: int, about: dict[str, Any], value: np.ndarray
    ) -> PerWorkerVariable:
        kinds = {k: about[k] for k in ("name", "dtype", "trainable", "aggregation")}
        kinds["synchronization"] = about["synchronization"]
        with self.strategy.scope():
            own = self.strategy.make_own(functools.partial(Variable, value, **kinds))

        def read_all() -> NoReturn:
            raise ContextError(
                f"A function that a worker runs called read_all of {about['name']}, and the other "
                "workers are other processes. Call it in the coordinator."
            )

        known_by = RemoteVariable(about, value, number)
        return PerWorkerVariable(lambda: own, read_all, self.workers, known_by)

    def _frames(self, what: str, value: Any) -> Frames | None:
        return None if value is None else pickled(self._name, what, value)[0]

    def _error(self, error: BaseException) -> Frames | None:
        """Returns an error as bytes; one that can't be pickled by its text."""
        try:
            frames = self._frames("An error", error)
            assert frames is not None
            loaded(frames)
        except Exception:  # noqa: BLE001 - whatever a class of others does
            frames = self._frames("An error", ClusterError(f"{type(error).__name__}: {error}"))
        return frames


class _Function:
    """A function as it came, and as it is once it was loaded."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._loaded: tuple[Any, CapturedLists] | None = None

    def loaded(self) -> tuple[Any, CapturedLists]:
        """Returns the function and the lists that it refers to; raises each time if it can't."""
        if self._loaded is None:
            fn = loaded(self._frames)
            self._loaded, self._frames = (fn, CapturedLists(fn)), []
        return self._loaded
