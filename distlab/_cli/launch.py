"""`distlab launch`: runs a program in several processes on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from distlab._cli.options import HelpFormatter, file_path, port, processes, seconds, whole
from distlab._cli.serving import prepare, serve, wait_for_interrupt
from distlab.errors import DistlabError, NotARunError, NotFoundError
from distlab.launching import job
from distlab.launching.worker_process import Stream

if TYPE_CHECKING:
    from distlab_dashboard import DashboardServer

_LOOK_SECONDS: Final = 0.25

DESCRIPTION = """\
Runs a program in several processes on this machine, as the workers of a
MultiWorkerMirroredStrategy. TF_CONFIG gives each process the addresses of all workers and its
own index.

Each line of output begins with its worker's name. If a worker fails, the others have --grace
seconds to end; then they get SIGTERM, and after as many seconds again SIGKILL. Ctrl-C is passed
on to all workers. No process is ever left behind."""

EPILOG = """\
exit code: 0 if all workers succeed, else that of the worker that failed first
(128 plus the signal's number if a signal ended it).

example:
  $ distlab launch --workers 2 --devices 2 examples/two_workers.py
  [worker-0] step 14: loss 1.378, 4 replicas
  [worker-1] step 14: loss 1.378, 4 replicas
  ..."""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "launch",
        help="run a program in several processes, the workers of one strategy",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "-n", "--workers", type=processes, default=2, metavar="N",
        help="number of processes (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--devices", type=processes, metavar="N",
        help="number of CPU devices of each worker, each with one replica (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--grace", type=seconds, default=10.0, metavar="SECONDS",
        help="time to end after a failure, and again after SIGTERM (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--max-restarts", type=whole, default=0, metavar="N",
        help="restart all workers after a failure, at most N times (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--dashboard", type=file_path, metavar="RUN",
        help="show the run that the workers record in this folder, until Ctrl-C",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=port, metavar="PORT",
        help="port of the dashboard (default: the first free one from 5006)",
    )  # fmt: skip
    parser.add_argument(
        "-m", dest="module", action="store_true", help="PROGRAM is a module, as in python -m"
    )
    parser.add_argument("program", metavar="PROGRAM", help="the Python program of each worker")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="the program's own arguments"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the workers and returns the exit code."""
    # A name that no file can have raises in Path's methods.
    if not args.module and not os.path.isfile(args.program):  # noqa: PTH113
        raise NotFoundError(
            f"distlab launch runs a Python program, and there is no file {args.program!r}. Write "
            "its path, or -m and the name of a module."
        )
    program = ["-m", args.program] if args.module else [args.program]
    output = _Output()

    def say(text: str) -> None:
        output.write("err", "distlab launch", text.encode())

    work = job.Job(
        command=[sys.executable, *program, *args.arguments],
        workers=args.workers,
        devices=args.devices,
        grace=args.grace,
        max_restarts=args.max_restarts,
    )
    if args.dashboard is None:
        return job.run(work, output.write, say).code
    prepare(args.port)
    with _LiveDashboard(args.dashboard, args.port, say) as dashboard:
        end = job.run(work, output.write, say)
        if not end.signalled:
            dashboard.stay()
    return end.code


class _Output:
    """Writes whole lines, as bytes, each with the name of the process it comes from.

    A reader that has gone (`| head`), a full disk or a closed stream (`>&-`) ends no process:
    what they print there from then on is dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gone: set[Stream] = set()

    def write(self, stream: Stream, name: str, line: bytes) -> None:
        """Writes one line."""
        with self._lock:
            file = sys.stdout if stream == "out" else sys.stderr
            if stream in self._gone or file is None:
                return
            try:
                file.buffer.write(b"[%s] %s\n" % (name.encode(), line))
                file.flush()
            except BlockingIOError:
                pass  # the reader's pipe is full: this line is lost
            except OSError:
                self._gone.add(stream)
                # What is still in the buffer would raise when the interpreter ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())


class _LiveDashboard:
    """Serves a folder from the moment on at which a run is recorded in it, until it is closed.

    The folder need not exist yet. Port None is the first free one from 5006, 0 is any free
    one.
    """

    def __init__(self, folder: Path, port: int | None, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._port = port
        self._say = say
        self._server: DashboardServer | None = None
        self._ended = threading.Event()
        self._began = time.time()
        self._thread = threading.Thread(target=self._work, name="distlab dashboard", daemon=True)

    def __enter__(self) -> Self:
        """Begins to look for a run."""
        self._thread.start()
        return self

    def stay(self) -> None:
        """Serves on until Ctrl-C, when the program has ended and a run was recorded."""
        self._ended.set()
        self._thread.join()
        if self._server is not None:
            self._say(
                f"the program has ended; the dashboard stays until Ctrl-C: {self._server.url}"
            )
            wait_for_interrupt()

    def __exit__(self, *_: object) -> None:
        """Stops serving."""
        self._ended.set()
        self._thread.join()
        if self._server is not None:
            self._server.stop()

    def _work(self) -> None:
        while not self._serves():
            if self._ended.wait(_LOOK_SECONDS) and not self._serves():
                self._say(f"no dashboard: nothing was recorded in {self._folder}")
                return

    def _serves(self) -> bool:
        """Serves the run once it is there; returns whether it is, or can't be served."""
        folder = self._recorded()
        if folder is None:
            return False
        try:
            self._server = serve(self._folder, port=self._port, open_browser=False)
        except NotARunError:  # its file has just been made
            return False
        except DistlabError as error:
            self._say(f"no dashboard: {error}")
            return True
        self._say(f"the run is recorded in {folder}")
        if self._server.view_url:
            self._say(f"to look only: {self._server.view_url}")
        self._say(f"dashboard: {self._server.url}")
        return True

    def _recorded(self) -> Path | None:
        """Returns the folder in which a run was recorded since the begin."""
        from distlab.runs.listing import run_folders
        from distlab.runs.run_file import run_files

        for folder in run_folders(self._folder):
            for file in run_files(folder):
                with contextlib.suppress(FileNotFoundError):
                    if file.stat().st_mtime >= self._began:
                        return folder
        return None
