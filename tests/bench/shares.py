"""The share of a slow replica that advice tells, beside what equal work takes by the clock.

    python -m tests.bench.shares [--rounds 8]

The replica computes. So its share depends on what else the machine does, and a round in which that
changed, by its own repeated measurement, is marked and left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import distlab as dl
from tests.advice.programs import for_seconds
from tests.advice.slow_steps import products
from tests.bench.recording import seconds

_ROUNDS_OF_ONE = 600
_SECONDS = 4.0
_STEPS = 40
_CHANGED = 0.15


class Round(NamedTuple):
    """What one recording of slow steps tells, and the clock.

    Attributes:
      told: The share in the advice; None without one.
      measured: One minus the time of an equal step by that of a slow one.
      changed: How much the repeated measurements differ, at most.
    """

    told: float | None
    measured: float
    changed: float


def measure(slow: Callable[[], Any], equal: Callable[[], Any], folder: Path) -> Round:
    """Records slow steps between equal ones that are not recorded."""
    before = [seconds(equal) for _ in range(_STEPS)]
    with dl.record(folder):
        taken = [seconds(slow) for _ in for_seconds(_SECONDS, _STEPS)]
    after = [seconds(equal) for _ in range(_STEPS)]
    half = len(taken) // 2
    pairs = [(before, after), (taken[:half], taken[half:])]
    changed = max(abs(statistics.median(a) / statistics.median(b) - 1) for a, b in pairs)
    with dl.Run.open(folder) as run:
        told = [one.share for one in run.advice() if one.cause == "slow_replica"]
    measured = 1 - statistics.median(before + after) / statistics.median(taken)
    return Round(told[0] if told else None, measured, changed)


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8, metavar="N")
    rounds = parser.parse_args().rounds
    dl.use_cpu_devices(2)
    for times in (3, 5):
        slow, equal = (
            products(dl.MirroredStrategy(["CPU:0", "CPU:1"]), _ROUNDS_OF_ONE, factor)
            for factor in (times, 1)
        )
        slow()
        equal()
        ratios = []
        for number in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                one = measure(slow, equal, Path(folder, "run"))
            counts = one.told is not None and one.changed <= _CHANGED
            told = "none" if one.told is None else f"{one.told:.0%}"
            note = "" if counts else "  (left out)"
            print(
                f"{times} times the work, round {number}: told {told}, by the clock "
                f"{one.measured:.0%}; repeated measurements differ by {one.changed:.0%}{note}",
                flush=True,
            )
            if one.told is not None and counts:
                ratios.append(one.told / one.measured)
        middle = f"{statistics.median(ratios):.2f}" if ratios else "unknown"
        print(f"{times} times the work: told by clock {middle}, {len(ratios)} of {rounds} rounds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
