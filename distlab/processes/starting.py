"""The start of several processes by JAX, watched: the loss of one ends it in all.

JAX's functions wait in C++ for all processes, for minutes, and then end their own. So they run in a
thread, while this one looks whether the connections of the meeting are open.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar, final

import jax

from distlab.devices import jax_internals
from distlab.errors import ClusterError
from distlab.launching.cluster_processes import QUIET, coordinator_command
from distlab.processes.meeting import Answer, Link, has_closed, is_readable, received, send_all
from distlab.text.shown import shown_clause
from distlab.threads import Thread

_LOOK_SECONDS: Final = 0.05
_READ_SECONDS: Final = 1.0
_LEAVE_SECONDS: Final = 3.0
"""The coordination service outlives a start that failed by this: others leave it meanwhile."""
_EXCLUDED: Final = "no_grpc_proxy"

ResultT = TypeVar("ResultT")


@final
class Start(contextlib.AbstractContextManager["Start"]):
    """A block in which the processes start; what it raises in one ends it in all.

    `links` are the chief's to all others, or another one's to the chief.
    """

    def __init__(self, names: list[str], index: int, links: list[Link], seconds: float) -> None:
        self._name, self._links = names[index], links
        self._others = names[:1] if index else names[1:]
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._service: subprocess.Popen[bytes] | None = None

    def serve(self, address: str) -> subprocess.Popen[bytes]:
        """Starts the coordination service in a process of its own, as the launcher does."""
        command = coordinator_command(address, len(self._links) + 1)
        self._service = subprocess.Popen(
            [*command, str(os.getpid())],
            env={**os.environ, **QUIET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C does not reach it
        )
        return self._service

    def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Returns what a function returns that waits for the other processes."""
        ended: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

        def call() -> None:
            try:
                ended.put((work(), None))
            except BaseException as error:  # noqa: BLE001 - raised below
                ended.put((None, error))

        Thread(call, name="distlab start").start()
        while True:
            with contextlib.suppress(Empty):
                result, error = ended.get(timeout=_LOOK_SECONDS)
                if error is None:
                    return result
                self._explain()
                raise error
            self.look()
            if time.monotonic() > self._until:
                raise ClusterError(
                    f"JAX must connect the processes within {self._seconds:g} seconds of their "
                    "meeting, and has not. Check that all machines can reach the chief's, and one "
                    "another, at any port."
                )

    def look(self) -> None:
        """Raises a `ClusterError` once another process has ended, or has reported an error."""
        if self._service is not None and self._service.poll() is not None:
            raise ClusterError(
                f"JAX's coordination service is served by process {self._service.pid}, which ended "
                f"with exit code {self._service.returncode}. Start all processes again."
            )
        for name, link in zip(self._others, self._links, strict=True):
            answer = None
            with contextlib.suppress(OSError, ValueError):
                if is_readable(link) and not has_closed(link):
                    answer = received(link, time.monotonic() + _READ_SECONDS)
            if answer is not None and answer.error:
                raise ClusterError(answer.error)
            if has_closed(link):
                raise ClusterError(
                    f"All processes of a cluster start together, and {name} ended while they did. "
                    "Look at what it printed last, and start all of them again."
                )

    def _explain(self) -> None:
        """Looks, for a moment, whether another process is the cause of an error."""
        until = time.monotonic() + _READ_SECONDS
        while time.monotonic() < until:
            self.look()
            time.sleep(_LOOK_SECONDS)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        text = str(error)
        if not isinstance(error, ClusterError):
            text = f"{self._name} could not start: {shown_clause(error)}."
        send_all(self._links, Answer(error=text))
        with contextlib.suppress(jax.errors.JaxRuntimeError):
            jax_internals.disconnect()
        if self._service is not None:
            self._await_others()
            self._service.kill()
            self._service.wait()
        for link in self._links:
            link.close()

    def _await_others(self) -> None:
        """Waits until the others have left the service; JAX ends a process that loses it."""
        until = time.monotonic() + _LEAVE_SECONDS
        for link in self._links:
            with contextlib.suppress(OSError):
                link.settimeout(max(_LOOK_SECONDS, until - time.monotonic()))
                while link.recv(1 << 16):  # the error of each, and then the end
                    pass


@contextlib.contextmanager
def without_proxy(host: str) -> Iterator[None]:
    """Excludes a host from the proxies that gRPC finds in the environment when it connects."""
    before = os.environ.get(_EXCLUDED)
    known = before or os.environ.get("no_proxy")
    os.environ[_EXCLUDED] = f"{known},{host}" if known else host
    try:
        yield
    finally:
        if before is None:
            del os.environ[_EXCLUDED]
        else:
            os.environ[_EXCLUDED] = before
