"""Runs a program in several real processes, as the workers of one cluster.

The processes are forked from one that has only imported the library, so that a start costs
tenths of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from distlab.launching.ports import Ports

ROOT = Path(__file__).parent.parent.parent
SECONDS = 180.0

_NURSERY = """
import json, os, sys
import jax.numpy
import distlab._api

program, clusters = json.loads(sys.stdin.read())
children = []
for rank, environment in enumerate(clusters):
    out, into = os.pipe()
    child = os.fork()
    if child:
        os.close(into)
        children.append((child, out))
        continue
    os.environ.update(environment)
    os.dup2(2, 1)
    def show(name, value):
        os.write(into, (json.dumps([name, value]) + "\\n").encode())
    try:
        names = {"__name__": "__main__", "RANK": rank, "show": show}
        exec(compile(program, "program", "exec"), names)
    except SystemExit:
        pass
    except BaseException as error:
        sys.last_value = error
        sys.excepthook(type(error), error, error.__traceback__)
        show("raised", [type(error).__name__, str(error)])
    import atexit
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(0)
results = []
for child, out in children:
    with os.fdopen(out) as text:
        shown = dict(map(json.loads, text))
    status = os.waitpid(child, 0)[1]
    results.append([os.waitstatus_to_exitcode(status), shown])
print(json.dumps(results))
"""


class Outcome(NamedTuple):
    """The end of one process.

    Attributes:
      code: Its exit code; the negative number of the signal that ended it.
      shown: The values that it passed to `show(name, value)`; `raised` for what it raised.
    """

    code: int
    shown: dict[str, Any]


def run_workers(
    program: str,
    *,
    workers: int,
    environment: Mapping[str, str] | None = None,
    chief: bool = False,
) -> list[Outcome]:
    """Runs a program in each worker of a new cluster, and waits until all have ended.

    Args:
      program: Its text. `RANK` is the number of the process; `show(name, value)` tells the test.
      workers: The number of workers.
      environment: Additional environment variables.
      chief: Whether the first one is a task of the job `chief`.
    """
    with Ports(workers) as ports:
        return _run_workers(program, ports.numbers, environment or {}, chief=chief)


def _run_workers(
    program: str, ports: list[int], environment: Mapping[str, str], *, chief: bool
) -> list[Outcome]:
    hosts = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"chief": hosts[:1], "worker": hosts[1:]} if chief else {"worker": hosts}
    tasks = [(job, index) for job, of_job in cluster.items() for index in range(len(of_job))]
    configs = [
        {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}
        for job, index in tasks
    ]
    every = {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1", **environment}
    inherited = {k: v for k, v in os.environ.items() if k not in {"XLA_FLAGS", "PJRT_NPROC"}}
    done = subprocess.run(
        [sys.executable, "-c", _NURSERY],
        input=json.dumps([textwrap.dedent(program), [{**config} for config in configs]]),
        env={**inherited, **every, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sys.stderr.write(done.stderr)  # pytest shows it with a failure
    return [Outcome(code, shown) for code, shown in json.loads(done.stdout)]
