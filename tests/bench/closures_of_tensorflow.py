"""The closures of `tests.bench.coordinator` with TensorFlow, its tasks as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from tests.bench import closures

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf


def free_ports(count: int) -> list[int]:
    """Returns ports that nobody listens at."""
    with ExitStack() as open_:
        sockets = [open_.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def serve_task(spec: dict[str, list[str]], job: str, index: int) -> None:
    """Serves as one task, until the process is killed."""
    server = tf.distribute.Server(
        tf.train.ClusterSpec(spec), job_name=job, task_index=index, protocol="grpc"
    )
    server.join()


def measure(spec: dict[str, list[str]]) -> None:
    """Connects to the tasks, and measures."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(spec), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        scalar = tf.Variable(0.0)
        many = [
            tf.Variable(tf.zeros(closures.FLOATS_OF_VARIABLE)) for _ in range(closures.VARIABLES)
        ]

    @tf.function
    def trivial() -> Any:
        return tf.constant(1.0)

    @tf.function
    def argument(x: Any) -> Any:
        return tf.reduce_sum(x)

    @tf.function
    def add() -> None:
        scalar.assign_add(1.0, read_value=False)

    @tf.function
    def variables() -> Any:
        total = tf.add_n([tf.reduce_sum(variable) for variable in many])
        for variable in many:
            variable.assign_add(tf.ones(closures.FLOATS_OF_VARIABLE), read_value=False)
        return total

    mb = tf.ones(closures.FLOATS_OF_MB)
    closures.serve(
        coordinator,
        {
            "trivial": (trivial, ()),
            "argument": (argument, (mb,)),
            "scalar": (add, ()),
            "variables": (variables, ()),
        },
    )


def main() -> None:
    """Starts a process for each task, and measures in this one."""
    tf.get_logger().setLevel("ERROR")
    if len(sys.argv) > 1:
        spec, job, index = json.loads(sys.argv[1])
        serve_task(spec, job, index)
        return
    ports = free_ports(closures.WORKERS + closures.SERVERS)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    spec = {"worker": addresses[: closures.WORKERS], "ps": addresses[closures.WORKERS :]}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, json.dumps([spec, job, index])],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        for job, own in spec.items()
        for index in range(len(own))
    ]
    try:
        measure(spec)
    finally:
        for task in tasks:
            task.kill()
            task.wait()
        sys.stdout.flush()
        os._exit(0)  # TensorFlow's threads wait for tasks that are gone


if __name__ == "__main__":
    main()
