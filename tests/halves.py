"""Runs all tests in two processes, one for each core: `python -m tests.halves`.

The first half prints as it runs, the second when both have ended. On a machine with one core, and
with options for pytest, all tests run in one process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

FIRST: Final = (
    *("advice", "charts", "cluster", "collectives", "context", "control", "data", "devices"),
    *("events", "folds", "input", "integrations", "io", "misuse", "notebooks"),
    *("processes", "profiling"),
)
"""What takes about half of the time; everything else is the second half."""


def main(options: list[str]) -> int:
    """Runs the tests.

    Args:
      options: Options for pytest.

    Returns:
      The exit code: 0 when all tests passed.
    """
    pytest = [sys.executable, "-m", "pytest", "-q"]
    if options or (os.cpu_count() or 1) < 2:
        return subprocess.run([*pytest, *options], cwd=ROOT, check=False).returncode
    first = [f"tests/{name}" for name in FIRST]
    rest = ["tests", "-p", "no:cacheprovider", *(f"--ignore={path}" for path in first)]
    with tempfile.TemporaryFile() as output:
        second = subprocess.Popen(
            [*pytest, *rest], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            codes = [subprocess.run([*pytest, *first], cwd=ROOT, check=False).returncode]
            codes.append(second.wait())
        finally:
            second.kill()
        output.seek(0)
        sys.stdout.buffer.write(output.read())
        sys.stdout.flush()
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
