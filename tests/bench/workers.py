"""Compares training in several processes with raw `jax.distributed`.

Usage: `python -m tests.bench.workers`. Each peer starts its own workers with `distlab launch`; the
peers take turns, round by round.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).parent / "worker_program.py"
PEERS: Final = ("raw", "distlab", "distlab_recording")
SPLITS: Final = ((2, 4), (4, 2))
LIMIT_SECONDS: Final = 300


def measured(peer: str, workers: int, devices: int, folder: str) -> float:
    """Returns a peer's ms a step, as worker 0 measures them."""
    options = ["--workers", str(workers), "--devices", str(devices)]
    done = subprocess.run(
        [sys.executable, "-m", "distlab", "launch", *options, str(PROGRAM), peer],
        env={**os.environ, "BENCH_RUN": str(Path(folder) / "run")},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    found = re.search(r"\[worker-0\] ms a step: ([\d.]+)", done.stdout)
    if found is None:
        raise SystemExit(f"{peer} with {workers} workers failed:\n{done.stdout}{done.stderr}")
    return float(found[1])


def main() -> None:
    """Prints the medians, and each peer's time as a multiple of raw JAX's in the same round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    rounds = parser.parse_args().rounds
    for workers, devices in SPLITS:
        times: dict[str, list[float]] = {peer: [] for peer in PEERS}
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(rounds):
                for peer in PEERS:
                    times[peer].append(measured(peer, workers, devices, folder))
        print(f"{workers} workers with {devices} CPU devices each: a training step, perceptron")
        for peer in PEERS:
            ratios = [ours / raw for ours, raw in zip(times[peer], times["raw"], strict=True)]
            print(
                f"  {peer:18} {statistics.median(times[peer]):6.1f} ms  "
                f"({statistics.median(ratios):.2f}x the time, "
                f"{min(ratios):.2f} to {max(ratios):.2f})"
            )


if __name__ == "__main__":
    main()
