"""What recording costs and how fast runs are read: numbers for docs/performance.md.

    python -m tests.bench.recording [--events 10000000]

The bare measurements beside ours run in the same process, in turns.
"""

from __future__ import annotations

import argparse
import functools
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import jax
import msgspec

from distlab.events import Event, Step, Strategy
from distlab.recording import RingRecorder
from distlab.runs.run_file import Row, RunFile
from tests.recording import samples

BATCH = 4_096
ROUNDS = 7


def step(number: int) -> Step:
    return Step(
        time_ns=number * 1_000,
        step=number,
        program=0,
        strategy=0,
        dispatched_ns=number * 1_000 + 300,
        examples=64,
    )


def seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def emit() -> None:
    """A struct and `emit`, beside a struct and an append to a list."""
    jax.devices()
    count = 200_000
    recorder = RingRecorder()
    recorder.emit(step(0))

    def ours() -> None:
        for number in range(count):
            recorder.emit(step(number))

    def bare() -> None:
        kept: list[Step] = []
        for number in range(count):
            kept.append(step(number))
            if len(kept) > BATCH:
                kept.clear()

    both = [(seconds(ours), seconds(bare)) for _ in range(ROUNDS)]
    mine, plain = (statistics.median(column) / count * 1e6 for column in zip(*both, strict=True))
    print(f"emit, with making the event: {mine:.2f} us; a bare append: {plain:.2f} us")


def write_all(file: RunFile, batches: list[list[Event]]) -> None:
    """Stores batches of events."""
    for batch in batches:
        file.write(batch)


def insert_all(bare: sqlite3.Connection, batches: list[list[Row]]) -> None:
    """Inserts batches of rows, 256 with each statement."""
    for batch in batches:
        bare.execute("BEGIN")
        for at in range(0, len(batch), 256):
            part = batch[at : at + 256]
            places = ",".join(["(?,?,?,?)"] * len(part))
            values = [value for row in part for value in row]
            bare.execute(f"INSERT INTO events VALUES {places}", values)
        bare.execute("COMMIT")


def store(folder: Path) -> None:
    """Events stored a second, beside bare batched inserts of the same rows."""
    batches: list[list[Event]] = [[step(n * BATCH + i) for i in range(BATCH)] for n in range(50)]
    encode = msgspec.msgpack.Encoder().encode
    rates = []
    for number in range(ROUNDS):
        file = RunFile(folder / f"ours-{number}", "bench")
        ours = seconds(functools.partial(write_all, file, batches))
        file.close()
        bare = sqlite3.connect(folder / f"bare-{number}.sqlite", isolation_level=None)
        bare.execute("PRAGMA journal_mode=WAL")
        bare.execute("PRAGMA synchronous=NORMAL")
        bare.execute(
            "CREATE TABLE events (seq INTEGER PRIMARY KEY, time_ns INTEGER, kind TEXT, body BLOB)"
        )
        rows: list[list[Row]] = [
            [(place, e.time_ns, "step", encode(e)) for place, e in enumerate(batch, n * BATCH)]
            for n, batch in enumerate(batches)
        ]

        plain = seconds(functools.partial(insert_all, bare, rows))
        bare.close()
        rates.append((len(batches) * BATCH / ours, len(batches) * BATCH / plain))
    mine, plain = (statistics.median(column) for column in zip(*rates, strict=True))
    print(
        f"stored: {mine:,.0f} events/s, encoded and indexed; bare inserts of encoded rows: "
        f"{plain:,.0f}/s; ratio {mine / plain:.2f}"
    )


def write_large(folder: Path, events: int) -> None:
    """Writes a run of so many steps."""
    file = RunFile(folder, "large")
    strategy = Strategy(time_ns=1, strategy=0, name="MirroredStrategy", devices=["CPU:0"])
    file.write([samples.run(), strategy])
    for first in range(0, events, BATCH):
        file.write([step(first + i) for i in range(BATCH)])
    file.close()


def large(folder: Path, events: int) -> None:
    """A long run: its first summary, and a hundredth of its time, in a new process."""
    write_large(folder / "large", events)
    told = subprocess.run(
        [sys.executable, "-m", "tests.bench.recording", "--read", str(folder / "large")],
        capture_output=True,
        text=True,
        check=True,
    )
    print(told.stdout.strip())


def read(folder: str) -> None:
    """Reads a long run; prints how long that took."""
    import distlab as dl

    dl.Run  # noqa: B018 - importing is no part of it
    began = time.perf_counter()
    run = dl.Run.open(folder)
    summary = run.summary()
    opened = time.perf_counter() - began
    parts = []
    for part in (0.1, 0.5, 0.9):
        start = summary["seconds"] * part
        end = start + summary["seconds"] / 100
        began = time.perf_counter()
        count = sum(1 for _ in run.events(start=start, end=end))
        parts.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"a run of {summary['steps']:,} steps: opened and summed up in {opened * 1e3:.0f} ms, "
        f"1 % of its time ({count:,} events) in {max(parts) * 1e3:.0f} ms at most, "
        f"{memory / 1e6:.0f} MB resident"
    )


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--events", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--read", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        read(args.read)
        return 0
    emit()
    with tempfile.TemporaryDirectory() as folder:
        store(Path(folder))
        large(Path(folder), args.events)
    return 0


if __name__ == "__main__":
    sys.exit(main())
