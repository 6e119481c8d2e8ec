"""`distlab runs`: a table of the runs in a folder.

Example:
  >>> import distlab as dl
  >>> from distlab.cli import main
  >>> with dl.record("runs/first") as recording:
  ...     recording.log(0, loss=0.5)
  >>> main(["runs", "runs"])
  run    started              status    steps  steps/s  replicas  size    last metrics
  first  ...                  finished  0      0.0      ... MB  loss 0.5
  0
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distlab._cli.options import HelpFormatter, folder
from distlab.errors import NotARunError
from distlab.runs.summary import Summary

COLUMNS = ("run", "started", "status", "steps", "steps/s", "replicas", "size", "last metrics")

EPILOG = """\
example:
  distlab runs runs"""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "runs",
        help="list the recorded runs in a folder",
        description="Lists the recorded runs in a folder and its subfolders, the newest first.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "folder", type=folder, metavar="DIR", nargs="?", default=Path("runs"),
        help="the folder (default: runs)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the table and returns the exit code."""
    if not args.folder.is_dir():
        raise NotARunError(
            f"distlab runs lists a folder of runs, and {args.folder} is not a folder. Name the one "
            "in which distlab.record created its folders."
        )
    found = sorted(_summaries(args.folder), key=lambda s: -s["started"])
    if not found:
        example = args.folder / "first"
        print(f"No runs in {args.folder}. Record one: distlab demo --record {example}")
        return 0
    rows = [COLUMNS, *(_row(summary, args.folder) for summary in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return 0


def _summaries(root: Path) -> Iterator[Summary]:
    from distlab import Run
    from distlab.runs.listing import run_folders

    for path in run_folders(root):
        try:
            with Run.open(path) as recorded:
                yield recorded.summary()
        except NotARunError as error:
            print(f"distlab: {error}")


def _row(summary: Summary, root: Path) -> tuple[str, ...]:
    path = Path(summary["path"])
    rate = summary["steps"] / summary["seconds"] if summary["seconds"] else 0.0
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    metrics = [f"{name} {value:.4g}" for name, value in list(summary["metrics"].items())[:3]]
    lost = [f"{summary['lost']} events lost"] if summary["lost"] else []
    return (
        str(path.relative_to(root)) if path != root else path.name,
        f"{datetime.fromtimestamp(summary['started'], UTC).astimezone():%Y-%m-%d %H:%M:%S}",
        summary["status"],
        f"{summary['steps']:,}".replace(",", " "),
        f"{rate:.1f}",
        str(max(summary["replicas"], default=0)),
        f"{size / 1e6:.1f} MB",
        ", ".join([*metrics, *lost]),
    )
