"""A worker's side of a session: the closures, variables and datasets of one coordinator."""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeAlias, final

import numpy as np
from distributed.core import ConnectionPool

from distlab.coordinator.closures import call
from distlab.coordinator.worker_datasets import dataset_of
from distlab.errors import ArgumentTypeError, ClusterError, ServerLostError
from distlab.integrations.dask import references
from distlab.integrations.dask.buffered_values import BufferedValues
from distlab.integrations.dask.captured import CapturedContainers, Changes
from distlab.integrations.dask.channel import Channel
from distlab.integrations.dask.messages import AFTER_ERROR, Frames, Order, sendable
from distlab.integrations.dask.own_variables import own_variable
from distlab.integrations.dask.pickling import loaded, pickled
from distlab.integrations.dask.server_calls import ServerCalls
from distlab.integrations.dask.server_channels import ServerChannels
from distlab.strategies.parameter_server import ParameterServerStrategy
from distlab.variables.remote_storage import Key, RemoteStorage
from distlab.variables.server_traffic import WorkerTraffic
from distlab.variables.variable import Variable, linked

Answer: TypeAlias = dict[str, Any]


@final
class WorkerSession:
    """Runs the closures of one coordinator in this process.

    Args:
      name: The session's name.
      pool: The connections of this process.
      loop: Their event loop, in another thread than the closures.
      number: This worker's number.
      workers: The number of workers.
      servers: The addresses of the parameter servers.
      paths: Where the coordinator's process finds modules.
      module: What makes this process know the libraries that the coordinator's knows.
      counted: Whether the coordinator is told what goes to and from the servers.

    Attributes:
      strategy: The coordinator's strategy, as it is here.
      values: The variables' values.
      workers: The number of workers.
      servers: The names of the parameter servers.
    """

    def __init__(
        self,
        name: str,
        pool: ConnectionPool,
        loop: asyncio.AbstractEventLoop,
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
        self._channels = ServerChannels(name, pool, loop, servers.__getitem__)
        self.values = BufferedValues(ServerCalls(self._channels, self._traffic))
        self.workers = workers
        self.servers = tuple(f"ps {n}" for n in range(len(servers)))
        self.strategy = ParameterServerStrategy.in_worker(self, number)
        self._variables: dict[Key, Variable] = {}
        self._definitions: dict[int, Frames] = {}
        self._sent: dict[int, Frames] = {}  # functions that are not loaded yet, or can't be
        self._functions: dict[int, tuple[Any, CapturedContainers]] = {}
        self._resources: dict[int, Any] = {}
        self._failed: set[int] = set()  # closures
        self._coordinators: list[Channel] = []
        self._beginning = threading.Lock()
        self._begun = -1  # the newest closure
        self._withdrawn: set[int] = set()
        references.sessions[name] = self

    def serve(self, coordinator: Channel, turn: threading.Lock) -> None:
        """Runs closures in a thread of their own, until the connection ends."""
        self._coordinators.append(coordinator)
        # A daemon: a process can end while it runs a closure.
        threading.Thread(
            target=self._run_all, args=(coordinator, turn), name="distlab-worker", daemon=True
        ).start()

    def _run_all(self, coordinator: Channel, turn: threading.Lock) -> None:
        try:
            while True:
                number, after, closure = coordinator.receive()
                with turn:
                    answer = self._run(Order(number, after), closure)
                if answer is not None:
                    coordinator.send((number, answer))
        except OSError:
            pass  # the coordinator has ended, or takes this worker for lost
        finally:
            self._coordinators.remove(coordinator)
            coordinator.close()

    def withdraw(self, numbers: Sequence[int]) -> list[int]:
        """Takes back closures that did not begin."""
        with self._beginning:
            withdrawn = [number for number in numbers if number > self._begun]
            self._withdrawn.update(withdrawn)
        return withdrawn

    def _run(self, order: Order, closure: dict[str, Any]) -> Answer | str | None:
        """Runs a closure."""
        with self._beginning:
            if order.number in self._withdrawn:
                self._withdrawn.discard(order.number)
                return None
            self._begun = order.number
        self._failed.intersection_update(order.after)
        if self._failed:
            return AFTER_ERROR
        began = time.perf_counter()
        answer = self._answer(**closure)
        answer["seconds"] = time.perf_counter() - began
        if self._traffic is not None:
            answer["traffic"] = list(self._traffic.take().items())
        if "error" in answer:
            self._failed.add(order.number)
        return answer

    def _answer(
        self, fn: int, args: Frames | None, functions: Any, resources: Any, forget: Sequence[int]
    ) -> Answer:
        """Runs a closure, and returns its result or its error."""
        for number in forget:
            self._functions.pop(number, None)
            self._sent.pop(number, None)
        self._sent.update({n: frames for n, frames in functions if n not in self._functions})
        self._definitions.update(resources)
        answer: dict[str, Any]
        changes = Changes({}, [])
        try:
            with self.strategy.as_worker(self._number):
                if fn not in self._functions:
                    function = loaded(self._sent[fn])
                    self._functions[fn] = function, CapturedContainers(function)
                    del self._sent[fn]
                given, named = ((), {}) if args is None else loaded(args)
                self.values.begin(fn)
                function, containers = self._functions[fn]
                containers.remember()
                try:
                    result = call(function, given, named, self._number)
                    self.values.end()
                    answer = {"result": self._frames("The result of a closure", result)}
                finally:
                    changes = containers.changes()
                if any(changes):
                    answer["changes"] = self._frames("What a closure appended", tuple(changes))
        except ServerLostError as error:
            self.values.drop()
            answer = {"lost": str(error)}
        except BaseException as error:  # noqa: BLE001 - the coordinator raises it
            answer = {"error": self._error(error)}
        if "result" not in answer and any(changes):
            answer["changes"] = self._changes_before_error(changes)
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
            kind, source = loaded(self._definitions[number])
            match kind:
                case "dataset":
                    made = dataset_of(source)
                case "iterator":
                    made = iter(source)
                case _:
                    made = own_variable(self.strategy, number, *source)
            self._resources[number] = made
        return self._resources[number]

    def own_value(self, number: int) -> np.ndarray | None:
        """Returns the value of a per-worker variable; None when no closure has used it here."""
        variable = self._resources.get(number)
        return None if variable is None else variable.numpy()

    def close(self) -> None:
        """Forgets everything."""
        for coordinator in list(self._coordinators):
            coordinator.shut()
        self._channels.close()
        if references.sessions.get(self._name) is self:  # else the coordinator has come back
            del references.sessions[self._name]

    def _frames(self, what: str, value: Any) -> Frames | None:
        if value is None:
            return None
        return sendable(pickled(self._name, what, value)[0])

    def _changes_before_error(self, changes: Changes) -> Frames | None:
        """Returns changes as bytes; what can't be pickled is told as lost, beside the error."""
        try:
            return self._frames("What a closure appended", tuple(changes))
        except ArgumentTypeError:
            return self._frames("What a closure changed", ({}, [*changes.others, "a list"]))

    def _error(self, error: BaseException) -> Frames | None:
        """Returns an error as bytes; one that can't be pickled by its text."""
        try:
            self.values.end()
        except ServerLostError:
            self.values.drop()
        return self._error_frames(error)

    def _error_frames(self, error: BaseException) -> Frames | None:
        error.__traceback__ = None
        try:
            frames = pickled(self._name, "An error", error)[0]
            loaded(frames)
        except Exception:  # noqa: BLE001 - whatever a class of others does
            text = f"{type(error).__name__}: {error}"
            frames = pickled(self._name, "An error", ClusterError(text))[0]
        return sendable(frames)
