"""Compares distlab with raw JAX on the same work, interleaved, as ratios.

Each measurement is a process of its own; peers take turns within a round, so
that a machine that slows down slows all of them. A ratio above 1 means faster
than raw JAX. Speeds of simulated devices say nothing about real ones: only the
ratios are of interest. TensorFlow and Keras take part when they are named:
--tensorflow and --keras take the Python of an environment that has them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys

from tests.bench import divided, observed, process, ragged

PEERS = {
    "raw": ("raw_jax", "RawJax"),
    "raw_tuned": ("raw_jax", "RawJax"),
    "distlab": ("with_distlab", "WithDistlab"),
    "distlab_recording": ("with_distlab", "Recording"),
    "tensorflow": ("with_tensorflow", "WithTensorFlow"),
    "keras": ("with_keras", "WithKeras"),
}
WORK = {
    "dispatch": ("a trivial step", "us", 1e6),
    "dispatch_10": ("a trivial step, ten in one dispatch", "us", 1e6),
    "train_mlp": ("a training step, perceptron, batch 512", "ms", 1e3),
    "train_mlp_10": ("the same, ten in one dispatch", "ms", 1e3),
    "train_cnn": ("a training step, convolutions, batch 256", "ms", 1e3),
    "feed": ("an epoch of 59,904 images onto the devices", "ms", 1e3),
    "end_to_end": ("two epochs of the perceptron, from arrays", "ms", 1e3),
    "partial": ("an epoch of the perceptron, the last batch 133 of 512", "ms", 1e3),
    "ragged": ("a step whose parts differ in size, at 1, 3 and 8 replicas", "ms", 1e3),
    "divided": ("a step with Adam, variables divided over 8 replicas", "ms", 1e3),
    "model_axis": ("a step with Adam, 4 replicas of 2 devices", "ms", 1e3),
    "observe": ("what observe adds to a call of a jitted function", "us", 1e6),
    "reduce_1kb": ("reduce(SUM), 1 KB a replica", "us", 1e6),
    "reduce_1mb": ("reduce(SUM), 1 MB a replica", "us", 1e6),
    "reduce_64mb": ("reduce(SUM), 64 MB a replica", "ms", 1e3),
}
KERAS_TASKS = ("train_mlp", "train_cnn", "end_to_end")
LIMIT_SECONDS = 300.0

Times = dict[str, list[float]]


def main() -> int:
    """Measures, or compares measurements; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=8, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--tasks", nargs="+", default=list(WORK), choices=list(WORK))
    parser.add_argument("--tensorflow", metavar="PYTHON", help="has tensorflow installed")
    parser.add_argument("--keras", metavar="PYTHON", help="has keras and jax installed")
    parser.add_argument("--measure", nargs=2, metavar=("PEER", "TASK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        peer, task = args.measure
        print(json.dumps(measure(peer, task, args.replicas, args.seconds)))
        return 0
    pythons = dict.fromkeys(PEERS, sys.executable)
    for peer in ("tensorflow", "keras"):
        if getattr(args, peer):
            pythons[peer] = getattr(args, peer)
        else:
            del pythons[peer]
    print(f"{args.replicas} replicas on {os.cpu_count()} cores, {args.rounds} rounds, medians;")
    print("in brackets the speed as a multiple of raw JAX's, and its range over the rounds")
    for task in args.tasks:
        if task == "ragged":
            ragged.report(args.rounds)
        elif task in {"divided", "model_axis"}:
            divided.report(task, args.rounds)
        elif task == "observe":
            observed.report(args.rounds)
        else:
            compare(task, args, pythons)
    return 0


def measure(peer: str, task: str, replicas: int, seconds: float) -> float:
    """Returns the seconds that one call of the task takes in this process."""
    module_name, class_name = PEERS[peer]
    module = importlib.import_module(f"tests.bench.{module_name}")
    if peer == "raw_tuned":
        os.environ["PJRT_NPROC"] = str(max(2 * replicas, os.cpu_count() or 1))
        module.keep_large_buffers()
    return float(getattr(getattr(module, class_name)(replicas), task)(seconds))


def compare(task: str, args: argparse.Namespace, pythons: dict[str, str]) -> None:
    """Measures a task with all peers in turns and prints medians and ratios."""
    peers = [peer for peer in pythons if peer != "keras" or task in KERAS_TASKS]
    times: Times = {peer: [] for peer in peers}
    for number in range(args.rounds):
        first = number % len(peers)
        for peer in peers[first:] + peers[:first]:
            times[peer].append(in_process(pythons[peer], peer, task, args))
    name, unit, scale = WORK[task]
    print(f"\n{task}: {name}")
    for peer in peers:
        ratios = [raw / own for raw, own in zip(times["raw"], times[peer], strict=True)]
        median = statistics.median(times[peer]) * scale
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"  {peer:<18} {median:10.1f} {unit}   ({statistics.median(ratios):.2f}x, {spread})",
            flush=True,
        )


def in_process(python: str, peer: str, task: str, args: argparse.Namespace) -> float:
    """Measures in a new process."""
    options = ["--replicas", str(args.replicas), "--seconds", str(args.seconds)]
    given = ["--measure", peer, task, *options]
    found = process.measured("tests.bench.run", *given, seconds=LIMIT_SECONDS, python=python)
    return float(found)


if __name__ == "__main__":
    sys.exit(main())
