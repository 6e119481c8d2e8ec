"""Compares a coordinator's closures with TensorFlow's, each with 2 workers and 2 servers.

Usage: `python -m tests.bench.coordinator [--tensorflow PYTHON]`, with the Python of an environment
that has TensorFlow. Both clusters run at once and take turns, so that a machine that slows down
slows both; who waits has nothing to do. Only ratios are of interest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from typing import IO, Any, Final

from tests.bench import closures

GOAL: Final = 1.0
"""How many times as fast as TensorFlow distlab has to be."""


class Peer:
    """A coordinator in a process of its own."""

    def __init__(self, name: str, python: str, errors: IO[str]) -> None:
        self._name = name
        self._errors = errors
        self._process = subprocess.Popen(
            [python, "-m", f"tests.bench.closures_of_{name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def ready(self) -> None:
        """Waits until it has compiled everything."""
        self._answer()

    def rate(self, task: str, seconds: float) -> float:
        """Returns closures a second."""
        assert self._process.stdin is not None
        print(json.dumps([task, seconds]), file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("["):  # what a worker printed
                return json.loads(line)
        self._errors.seek(0)
        raise SystemExit(f"{self._name} failed:\n{self._errors.read()[-3_000:]}")


def main() -> None:
    """Prints medians, and how many times as fast as TensorFlow distlab was in each round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument(
        "--tasks", nargs="+", default=list(closures.TASKS), choices=list(closures.TASKS)
    )
    parser.add_argument("--tensorflow", metavar="PYTHON", help="has tensorflow installed")
    args = parser.parse_args()
    with ExitStack() as ended:
        peers = {}
        for name, python in (("distlab", sys.executable), ("tensorflow", args.tensorflow)):
            if python:
                errors = ended.enter_context(tempfile.TemporaryFile("w+"))
                peers[name] = Peer(name, python, errors)
                ended.callback(peers[name].close)
        for peer in peers.values():
            peer.ready()
        print(
            f"{closures.WORKERS} workers and {closures.SERVERS} servers on {os.cpu_count()} ",
            end="",
        )
        print(f"cores, {args.rounds} rounds, medians; load {os.getloadavg()[0]:.1f}")
        if not args.tensorflow:
            print("without TensorFlow: --tensorflow PYTHON compares with it")
        for task in args.tasks:
            rates: dict[str, list[float]] = {name: [] for name in peers}
            for number in range(args.rounds):
                for name in list(peers)[:: 1 if number % 2 else -1]:
                    rates[name].append(peers[name].rate(task, args.seconds))
            report(task, rates)


def report(task: str, rates: dict[str, list[float]]) -> None:
    """Prints the rates of one task."""
    print(f"\n{closures.TASKS[task]}, a second")
    for name, own in rates.items():
        print(f"  {name:<11}{statistics.median(own):8,.0f}   ({min(own):,.0f} to {max(own):,.0f})")
    if "tensorflow" in rates:
        ratios = [a / b for a, b in zip(rates["distlab"], rates["tensorflow"], strict=True)]
        print(
            f"  distlab is {statistics.median(ratios):.2f} times as fast "
            f"({min(ratios):.2f} to {max(ratios):.2f}; the goal is {GOAL:g})",
            flush=True,
        )


if __name__ == "__main__":
    main()
