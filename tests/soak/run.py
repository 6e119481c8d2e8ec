"""Checks that take too long for the tests: kills, a minute at full speed, and many damaged files.

    python -m tests.soak.run [--kills 200] [--resumes 30] [--seconds 60] [--files 2000]
        [--clusters 30] [--moments 50] [--stopped 3] [--lost 100]
        [--starts 50] [--interrupts 1000] [--logged 200000] [--strategies 200]
        [--pages 50]

Ends with 1 when something was not as it must be.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from distlab.errors import DistlabError
from distlab.events import Event, Lost, Step
from distlab.recording import RingRecorder, Run
from distlab.recording.writer import Writer
from distlab.runs.run_file import RunFile
from tests.integrations.clusters import start_and_stop
from tests.integrations.dask import disturbed
from tests.integrations.orbax import killed
from tests.recording import processes, samples
from tests.soak.interrupts import interrupts
from tests.soak.lost_workers import lost_workers
from tests.soak.memory import memory, resident
from tests.soak.starting_workers import starting_workers
from tests.soak.stopped_tasks import stopped_server, stopped_worker

TOLD_NS = 250_000_000
"""So much of the end of a killed run may be missing."""

EVENTS_A_SECOND = 50_000
SLICES = 100
MOST_GROWTH = 1.1
MOMENTS_OF_CLUSTER = 10

KILLED = """
run = dl.record(sys.argv[1])
number = 0
while True:
    step(number)
    number += 1
    if number % 50 == 0:
        print(number, time.monotonic_ns(), flush=True)
        time.sleep(0.001)
"""


def kills(folder: Path, count: int) -> list[str]:
    """Kills a recording process at random moments; its file must open and be nearly whole."""
    wrong = []
    for number in range(count):
        run = folder / f"killed-{number}"
        process = processes.start(KILLED, str(run))
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.uniform(0, 0.8))
        process.kill()
        out, _ = process.communicate(timeout=60)
        told = [line.split() for line in out.splitlines(keepends=True) if line.endswith("\n")]
        if not told:
            continue
        end_ns = int(told[-1][1])
        must = [int(count) for count, time_ns in told if int(time_ns) < end_ns - TOLD_NS]
        with Run.open(run) as stored:
            steps = [e.step for e in stored.events("step") if isinstance(e, Step)]
        if steps != list(range(len(steps))):
            wrong.append(f"kill {number}: events are missing in the middle")
        if must and len(steps) < must[-1]:
            wrong.append(f"kill {number}: {must[-1] - len(steps)} events older than 250 ms missing")
        shutil.rmtree(run)
    print(f"{count} kills: {len(wrong)} wrong")
    return wrong


def resumes(folder: Path, count: int) -> list[str]:
    """Kills trainings that save backups; each example must be applied once in every epoch."""
    wrong, done, seed = [], 0, 0
    while done < count:
        outcome = killed.run(folder / "backup", 5, seed, in_background=bool(seed % 2))
        result, wanted = outcome.result, killed.EPOCHS
        if (result["least"], result["most"]) != (wanted, wanted):
            wrong.append(f"training {seed}: {result} after {outcome.kills} kills, {outcome.starts}")
        done, seed = done + outcome.kills, seed + 1
    print(f"{done} kills of {seed} trainings: {len(wrong)} wrong")
    return wrong


def full_speed(folder: Path, seconds: float) -> list[str]:
    """Emits 50,000 events a second; none may be lost, and memory must stay flat."""
    recorder = RingRecorder()
    writer = Writer(recorder.ring, RunFile(folder / "fast", "fast"))
    writer.announce(samples.run())
    number, grown, late = 0, [], 0
    begin = time.monotonic()
    for slice_ in range(round(seconds * SLICES)):
        for _ in range(EVENTS_A_SECOND // SLICES):
            recorder.emit(samples.step(number))
            number += 1
        rest = begin + (slice_ + 1) / SLICES - time.monotonic()
        late += rest < 0
        time.sleep(max(rest, 0))
        if slice_ % SLICES == SLICES - 1:
            grown.append(resident())
    writer.close(samples.end())
    with Run.open(folder / "fast") as run:
        totals = run.summary()
        lost = sum(e.count for e in run.events("lost") if isinstance(e, Lost))
    early = max(grown[: len(grown) // 3 + 1])
    growth = grown[-1] / early
    print(
        f"{number:,} events in {time.monotonic() - begin:.1f} s: {totals['steps']:,} stored, "
        f"{lost} lost; memory grew {growth:.3f} times after the first third; {late} of "
        f"{round(seconds * SLICES)} slices were late"
    )
    wrong = []
    if lost or totals["steps"] != number:
        wrong.append(f"{number - totals['steps']} events were not stored")
    if growth > MOST_GROWTH:
        wrong.append(f"memory grew from {early / 1e6:.0f} to {grown[-1] / 1e6:.0f} MB")
    return wrong


def damaged(folder: Path, count: int) -> list[str]:
    """Changes bytes of run files and cuts them off: only typed errors may come of it."""
    events: list[Event] = [samples.run(), *samples.one_of_each()]
    events += [samples.step(number) for number in range(500)]
    file = RunFile(folder / "whole", "whole")
    for first in range(0, len(events), 100):
        file.write(events[first : first + 100])
    file.close()
    whole = file.path.read_bytes()
    wrong, opened = [], 0
    for number in range(count):
        numbers = random.Random(number)
        data = bytearray(whole)
        if numbers.random() < 0.3:
            del data[numbers.randrange(len(data)) :]
        for _ in range(numbers.choice([0, 1, 4, 64, 1_000])):
            if data:
                data[numbers.randrange(len(data))] = numbers.randrange(256)
        run_folder = folder / "damaged"
        run_folder.mkdir(exist_ok=True)
        (run_folder / file.path.name).write_bytes(bytes(data))
        try:
            with Run.open(run_folder) as run:
                list(run.events())
                run.summary()
                run.advice()
                opened += 1
        except DistlabError:
            pass
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            wrong.append(f"file {number}: {type(error).__name__}: {error}")
        shutil.rmtree(run_folder)
    print(f"{count} damaged files: {opened} opened, {len(wrong)} wrong")
    return wrong


def clusters(count: int) -> list[str]:
    """Starts and stops workers of a notebook; no process and no port may be left."""
    wrong = []
    begin = time.monotonic()
    for number in range(count):
        try:
            start_and_stop()
        except AssertionError as error:
            wrong.append(f"cluster {number}: {error}")
    print(f"{count} clusters in {time.monotonic() - begin:.0f} s: {len(wrong)} wrong")
    return wrong


def moments(count: int) -> list[str]:
    """Kills and stops workers and parameter servers; no closure's effect may be lost."""
    wrong = []
    begin = time.monotonic()
    for first in range(0, count, MOMENTS_OF_CLUSTER):
        some = min(MOMENTS_OF_CLUSTER, count - first)
        try:
            wrong += [f"moments from {first}: {what}" for what in disturbed.run(some, first)]
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            wrong.append(f"moments from {first}: {type(error).__name__}: {error}")
    print(f"{count} moments in {time.monotonic() - begin:.0f} s: {len(wrong)} wrong")
    return wrong


def stopped(folder: Path, count: int) -> list[str]:
    """Stops workers and parameter servers; they are lost within a minute."""
    wrong = []
    begin = time.monotonic()
    for number in range(count):
        own = folder / f"stopped-{number}"
        own.mkdir()
        wrong += stopped_worker(own) + stopped_server()
    print(f"{2 * count} processes stopped in {time.monotonic() - begin:.0f} s: {len(wrong)} wrong")
    return wrong


def main() -> int:
    """Runs all and returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, metavar="N")
    parser.add_argument("--resumes", type=int, default=30, metavar="N")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S")
    parser.add_argument("--files", type=int, default=2_000, metavar="N")
    parser.add_argument("--clusters", type=int, default=30, metavar="N")
    parser.add_argument("--moments", type=int, default=50, metavar="N")
    parser.add_argument("--stopped", type=int, default=3, metavar="N")
    parser.add_argument("--lost", type=int, default=100, metavar="N")
    parser.add_argument("--starts", type=int, default=50, metavar="N")
    parser.add_argument("--interrupts", type=int, default=1_000, metavar="N")
    parser.add_argument("--logged", type=int, default=200_000, metavar="N")
    parser.add_argument("--strategies", type=int, default=200, metavar="N")
    parser.add_argument("--pages", type=int, default=50, metavar="N")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = [
            *damaged(folder, args.files),
            *full_speed(folder, args.seconds),
            *kills(folder, args.kills),
            *resumes(folder, args.resumes),
            *clusters(args.clusters),
            *moments(args.moments),
            *stopped(folder, args.stopped),
            *lost_workers(folder, args.lost),
            *starting_workers(args.starts),
            *interrupts(args.interrupts),
            *memory(args.logged, args.strategies, args.pages),
        ]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
