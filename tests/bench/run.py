"""Compares distlab with raw JAX on the same work, interleaved, as ratios.

Each measurement is a process of its own; peers take turns within a round, so
that a machine that slows down slows all of them. A ratio above 1 means faster
than raw JAX. Speeds of simulated devices say nothing about real ones: only the
ratios are of interest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys

PEERS = ("raw", "raw_tuned", "distlab", "distlab_recording")
TASKS = ("dispatch", "train", "feed")
LIMIT_SECONDS = 300.0
WORK = {
    "dispatch": ("a trivial step", "us", 1e6),
    "train": ("a training step, perceptron, batch 512", "ms", 1e3),
    "feed": ("an epoch of 59,904 images onto the devices", "ms", 1e3),
}


def main() -> int:
    """Measures, or compares measurements; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=8, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--measure", nargs=2, metavar=("PEER", "TASK"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        peer, task = args.measure
        print(json.dumps(measure(peer, task, args.replicas, args.seconds)))
        return 0
    print(f"{args.replicas} replicas on {os.cpu_count()} cores, {args.rounds} rounds, medians")
    for task in args.tasks:
        compare(task, args)
    return 0


def measure(peer: str, task: str, replicas: int, seconds: float) -> float:
    """Returns the seconds that one call of the task takes in this process."""
    if peer.startswith("raw"):
        from tests.bench import raw_jax

        if peer == "raw_tuned":
            os.environ["PJRT_NPROC"] = str(max(2 * replicas, os.cpu_count() or 1))
            raw_jax.keep_large_buffers()
        return float(getattr(raw_jax.RawJax(replicas), task)(seconds))
    from tests.bench import with_distlab

    kind = with_distlab.Recording if peer == "distlab_recording" else with_distlab.WithDistlab
    return float(getattr(kind(replicas), task)(seconds))


def compare(task: str, args: argparse.Namespace) -> None:
    """Measures a task with all peers in turns and prints medians and ratios."""
    times: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for _ in range(args.rounds):
        for peer in PEERS:
            times[peer].append(in_process(peer, task, args))
    name, unit, scale = WORK[task]
    print(f"\n{task}: {name}")
    for peer in PEERS:
        ratios = [raw / own for raw, own in zip(times["raw"], times[peer], strict=True)]
        median = statistics.median(times[peer]) * scale
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"  {peer:<18} {median:9.1f} {unit}   {statistics.median(ratios):.2f}x raw  ({spread})",
            flush=True,
        )


def in_process(peer: str, task: str, args: argparse.Namespace) -> float:
    """Measures in a new process, because a process starts JAX's devices once."""
    command = [sys.executable, "-m", "tests.bench.run", "--measure", peer, task]
    command += ["--replicas", str(args.replicas), "--seconds", str(args.seconds)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=LIMIT_SECONDS, check=True
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
