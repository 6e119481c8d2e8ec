"""The processes of a cluster of this machine, each of which is watched until it ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import deque
from typing import Any, Final, NamedTuple

from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster

_RESTART_SECONDS: Final = 0.2
_PIECE_BYTES: Final = 1 << 16
_MOST_ENDS: Final = 16


class _End(NamedTuple):
    """How a process ended.

    Attributes:
      at_s: When, by `time.monotonic`.
      code: Its exit code, as `subprocess` has it.
    """

    at_s: float
    code: int


class TaskProcess(ProcessInterface):
    """The process of one task. A worker that ends is started again, with the same name."""

    def __init__(self, scheduler: str, name: str, *, restarts: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler = scheduler
        self._name = name
        self._restarts = restarts
        self._watching: asyncio.Task[None] | None = None
        self._noting: asyncio.Task[None] | None = None
        self._ends: deque[_End] = deque(maxlen=_MOST_ENDS)
        self._ended = asyncio.Event()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the process, and watches it."""
        await self._start()
        self._watching = asyncio.ensure_future(self._watch())
        await super().start()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Ends the process."""
        if self._watching is not None:
            self._watching.cancel()
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        if self._noting is not None:
            await self._noting
        await super().close()  # type: ignore[no-untyped-call]

    async def _start(self) -> None:
        module = "distlab.integrations.dask.task_process"
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, self._scheduler, self._name),
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._noting = asyncio.ensure_future(self._note_end(self.process))

    async def _note_end(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._ends.append(_End(time.monotonic(), code))
        self._ended.set()

    async def exit_code(self, since_s: float) -> int:
        """Waits until the process that ran at a time has ended, and returns its exit code."""
        while True:
            for end in self._ends:
                if end.at_s > since_s:
                    return end.code
            self._ended.clear()
            await self._ended.wait()

    async def _print_lines(self, output: asyncio.StreamReader) -> None:
        rest = b""
        while some := await output.read(_PIECE_BYTES):
            *lines, rest = (rest + some).split(b"\n")
            if len(rest) > _PIECE_BYTES:  # no line is too long, or kept for ever
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._print(line)
        if rest:
            self._print(rest)

    def _print(self, line: bytes) -> None:
        print(f"[{self._name}] {line.decode(errors='replace')}", flush=True)

    async def _watch(self) -> None:
        while True:
            assert self.process is not None
            assert self.process.stdout is not None
            await self._print_lines(self.process.stdout)
            await self.process.wait()
            if not self._restarts:
                return
            await asyncio.sleep(_RESTART_SECONDS)
            await self._start()


class LocalTasks(SpecCluster):
    """A scheduler and the processes of the tasks, each of which watches itself."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster would close a task for good that is not back within a quarter of a minute,
        # which a process takes to start on a busy machine.
        Cluster._update_worker_status(self, op, msg)

    async def exit_code(self, name: str, since_s: float) -> int | None:
        """Waits for the end of the process that was a task, and returns its exit code."""
        process: TaskProcess | None = self.workers.get(name)
        return None if process is None else await process.exit_code(since_s)
