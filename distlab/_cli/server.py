"""`distlab server`: this process is a worker or a parameter server of a cluster."""

from __future__ import annotations

import argparse
import json
import os
from importlib.util import find_spec
from typing import Any

from distlab._cli.options import HelpFormatter, whole
from distlab.cluster.server import Server
from distlab.cluster.spec import ClusterSpec
from distlab.cluster.tf_config import TFConfigClusterResolver
from distlab.errors import ClusterSpecError, MissingExtraError

DESCRIPTION = """\
Runs a worker or a parameter server of a cluster, for a ParameterServerStrategy in another
program. It listens at its task's address until it is ended, and serves one coordinator after
another. It may start before or after them.

TF_CONFIG names its task and cluster, or --job, --index and --cluster do. With --scheduler it
joins a Dask cluster instead, as the Dask worker of that name, and ends with it.

Anyone who can connect to it can run code here: use it in a network that you trust, or set up
TLS in Dask's configuration."""

EPILOG = """\
example:
  $ distlab server --job ps --index 0 --cluster '{"worker": ["a:2222"], "ps": ["localhost:2223"]}'
  ps 0 serves at localhost:2223"""

JOBS = ("worker", "ps")


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "server",
        help="run a worker or a parameter server of a cluster",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--job", choices=JOBS, help="the task's job (default: that of TF_CONFIG)"
    )  # fmt: skip
    parser.add_argument(
        "--index", type=whole, metavar="N",
        help="its number in the job, from 0 (default: that of TF_CONFIG)",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--cluster", metavar="JSON",
        help="the addresses of each job's tasks (default: those of TF_CONFIG)",
    )  # fmt: skip
    where.add_argument("--scheduler", metavar="ADDRESS", help="the scheduler of a Dask cluster")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves until the process is ended, and returns the exit code."""
    if find_spec("distributed") is None:
        raise MissingExtraError(
            "distlab server works with Dask, which is not installed. Run: pip install "
            "'distlab[cluster]'."
        )
    resolver = TFConfigClusterResolver()
    job = resolver.task_type if args.job is None else args.job
    index = resolver.task_id if args.index is None else args.index
    if job not in JOBS or index is None:
        raise ClusterSpecError(
            "distlab server needs the task that this process is: a worker or a ps, with its "
            f"index. Got job {job!r} and index {index}. Pass --job and --index, or set TF_CONFIG "
            f"(now {os.environ.get('TF_CONFIG')!r})."
        )
    if args.scheduler is not None:
        from distlab.integrations.dask.task import join_scheduler

        print(f"{job}-{index} joins the Dask cluster at {args.scheduler}", flush=True)
        join_scheduler(args.scheduler, f"{job}-{index}")
        return 0
    from distlab.integrations.dask.connection import host_and_port
    from distlab.integrations.dask.task import serve

    cluster = resolver.cluster_spec() if args.cluster is None else _cluster(args.cluster)
    server = Server(cluster, job, index)
    host_and_port(server.address)  # refuses an address without a port before it is printed
    print(f"{job} {index} serves at {server.address}", flush=True)
    serve(server)
    return 0


def _cluster(text: str) -> ClusterSpec:
    try:
        jobs = json.loads(text)
    except ValueError as error:
        raise ClusterSpecError(
            '--cluster must be JSON such as {"worker": ["a:2222"], "ps": ["b:2222"]}, got '
            f"{text!r}: {error}."
        ) from error
    return ClusterSpec(jobs)
