"""What reading records and examples costs: numbers for docs/performance.md.

    python -m tests.bench.records

Processor time, the least of several rounds. Files are read from the page cache.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import distlab as dl
from distlab.io._records import tf_records

ROUNDS = 7
BATCH = 256
SIZES = {100: 20_000, 10_000: 2_000, 110_000: 500}
"""The bytes of a record, and how many of them are read."""


def least(work: Callable[[], object]) -> float:
    """Returns the least processor time of a call, in seconds."""
    work()
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def read(path: Path) -> int:
    """Returns the number of records in a file, each verified."""
    with path.open("rb") as file:
        return sum(1 for _ in tf_records(file, str(path)))


def records(folder: Path) -> None:
    """Prints how fast files are read and written."""
    random = np.random.default_rng(0)
    for size, count in SIZES.items():
        path, data = folder / f"{size}.tfrecord", random.bytes(size)

        def write(path: Path = path, data: bytes = data, count: int = count) -> None:
            with dl.io.TFRecordWriter(path) as writer:
                for _ in range(count):
                    writer.write(data)

        written = least(write)
        seconds = least(lambda path=path: read(path))  # type: ignore[misc]
        dataset = dl.data.TFRecordDataset(path)
        through = least(lambda dataset=dataset: sum(1 for _ in dataset))  # type: ignore[misc]
        print(
            f"records of {size:>7,} bytes: read {size * count / seconds / 1e6:>6,.0f} MB/s, "
            f"{seconds / count * 1e6:.1f} us each; by a dataset {through / count * 1e6:.1f} us, "
            f"written {written / count * 1e6:.1f} us"
        )


def kinds() -> Iterator[tuple[str, list[bytes], dict[str, tuple[Any, ...]]]]:
    """Yields examples, with the arguments of their features."""
    random = np.random.default_rng(0)
    images = [
        dl.io.serialize_example({"image": random.random(784, np.float32), "label": n % 10})
        for n in range(BATCH)
    ]
    yield "784 floats and a label", images, {"image": ([784], "float32"), "label": ([], "int64")}
    scalars = [
        dl.io.serialize_example({f"x{k}": float(n * k) for k in range(10)}) for n in range(BATCH)
    ]
    yield "10 floats", scalars, {f"x{k}": ([], "float32") for k in range(10)}
    tokens = [
        dl.io.serialize_example({"tokens": random.integers(0, 30_000, n % 50 + 1), "label": n % 2})
        for n in range(BATCH)
    ]
    yield "1 to 50 tokens and a label", tokens, {"tokens": (), "label": ([], "int64")}


def examples() -> None:
    """Prints how fast examples are parsed."""
    for name, serialized, given in kinds():
        features = {
            key: dl.io.FixedLenFeature(*of) if of else dl.io.VarLenFeature("int64")
            for key, of in given.items()
        }
        batch = least(lambda s=serialized, f=features: dl.io.parse_example(s, f))  # type: ignore[misc]
        single = least(
            lambda s=serialized, f=features: [dl.io.parse_single_example(each, f) for each in s]  # type: ignore[misc]
        )
        print(
            f"examples of {name}: {batch / BATCH * 1e6:.1f} us each in a batch of {BATCH}, "
            f"{single / BATCH * 1e6:.1f} us alone"
        )


def main() -> None:
    """Prints all measurements."""
    with tempfile.TemporaryDirectory() as folder:
        records(Path(folder))
    examples()


if __name__ == "__main__":
    main()
