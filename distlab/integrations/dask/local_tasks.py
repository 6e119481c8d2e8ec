"""The processes of a cluster of this machine, each of which is watched until it ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import ProcessInterface, SpecCluster

_RESTART_SECONDS: Final = 0.2
_PIECE_BYTES: Final = 1 << 16


class TaskProcess(ProcessInterface):
    """The process of one task; Dask's `Nanny` would run a program's main module again."""

    def __init__(
        self, scheduler: str, name: str, *, restarts: bool, keys: Mapping[str, str]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._scheduler = scheduler
        self._name = name
        self._restarts = restarts
        self._keys = json.dumps(keys).encode()
        self._watching: asyncio.Task[None] | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Starts the process, and watches it."""
        self._watching = asyncio.ensure_future(self._watch(await self._started()))
        await super().start()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """Ends the process."""
        if self._watching is not None:
            self._watching.cancel()
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await super().close()  # type: ignore[no-untyped-call]

    async def _started(self) -> asyncio.subprocess.Process:
        module = "distlab.integrations.dask.task"
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, self._scheduler, self._name),
            env={**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(self._keys)  # an environment would go to their children
        self.process.stdin.write_eof()
        return self.process

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        while True:
            printing = asyncio.ensure_future(self._print_lines(process))
            self.exit.set_result(await process.wait())
            await printing
            if not self._restarts:
                return
            await asyncio.sleep(_RESTART_SECONDS)
            self.exit = asyncio.get_running_loop().create_future()
            process = await self._started()

    async def _print_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        rest = b""
        while some := await process.stdout.read(_PIECE_BYTES):
            *lines, rest = (rest + some).split(b"\n")
            if len(rest) > _PIECE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                print(f"[{self._name}] {line.decode(errors='replace')}", flush=True)
        if rest:
            print(f"[{self._name}] {rest.decode(errors='replace')}", flush=True)


class LocalTasks(SpecCluster):
    """A scheduler and the processes of the tasks, each of which watches itself."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster would close a task for good that is not back within a quarter of a minute,
        # which a process takes to start on a busy machine.
        Cluster._update_worker_status(self, op, msg)

    def exit_of(self, name: str) -> asyncio.Future[int]:
        """Returns the exit code to come of the process that is a task now."""
        process: TaskProcess = self.workers[name]
        return process.exit
