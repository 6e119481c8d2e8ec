"""`distlab export`: writes a recorded run to a file for other tools.

Example:
  >>> import distlab as dl
  >>> from distlab.cli import main
  >>> with dl.record("runs/first") as recording:
  ...     recording.log(0, loss=0.5)
  >>> main(["export", "runs/first", "-o", "trace.json"])
  trace.json: ... MB
  0
"""

from __future__ import annotations

import argparse
from typing import Any

from distlab._cli.options import HelpFormatter, file_path
from distlab.runs.exports import FORMATS
from distlab.text.paths import is_folder

EPILOG = "\n".join([
    "FILE ends in",
    *(f"  {known.suffix:<10}{known.text}" for known in FORMATS),
    "",
    "example:",
    "  $ distlab export runs/first -o run.html",
    "  run.html: 2.0 MB",
])  # fmt: skip


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "export",
        help="write a recorded run to a file for Perfetto or other tools",
        description="Writes a recorded run, finished or still being recorded, to a file.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("folder", type=file_path, metavar="RUN", help="folder of the recorded run")
    parser.add_argument(
        "-o", "--output", type=file_path, metavar="FILE", required=True, help="file to write"
    )
    for name, what in (("from", "begin"), ("to", "end")):
        parser.add_argument(
            f"--{name}", type=float, metavar="SECONDS", dest=what,
            help=f"{what} of the timeline's part to write, in seconds since the first event",
        )  # fmt: skip
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the file and returns the exit code."""
    from distlab import Run
    from distlab.errors import RecordError

    if is_folder(args.output):
        raise RecordError(f"{args.output} is a folder. Name the file to write, as -o run.html.")
    with Run.open(args.folder) as recorded:
        target = recorded.export(
            args.output, start=args.begin, end=args.end, overwrite=args.overwrite
        )
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
    return 0
