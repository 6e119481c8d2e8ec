"""`distlab runs`: a table of the runs in a folder.

Example:
  >>> import distlab as dl
  >>> from distlab.cli import main
  >>> with dl.record("runs/first") as recording:
  ...     recording.log(0, loss=0.5)
  >>> main(["runs", "runs"])
  run    started              status    steps  mean steps/s  replicas  size    last metrics
  first  ...                  finished  0      -             ... MB  loss 0.5
  0
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlab._cli.options import HelpFormatter, file_path
from distlab.errors import NotARunError
from distlab.runs.summary import Summary, gaps
from distlab.text.metric_names import by_interest
from distlab.text.paths import is_folder
from distlab.text.printable import printable
from distlab.text.units import plain, rate_text

if TYPE_CHECKING:
    from distlab.runs.listing import Unreadable

COLUMNS = ("run", "started", "status", "steps", "mean steps/s", "replicas", "size", "last metrics")

EPILOG = """\
example:
  $ distlab runs
  run    started              status    steps  mean steps/s  replicas  size    last metrics
  first  2026-11-28 10:14:37  finished  121    8.24          8         0.4 MB  loss 0.1313"""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "runs",
        help="list the recorded runs in a folder",
        description="Lists the recorded runs in a folder and its subfolders, three levels\n"
        "deep, the newest first. Links in it are not followed.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "folder", type=file_path, metavar="DIR", nargs="?", default=Path("runs"),
        help="the folder (default: runs)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the table and returns the exit code."""
    from distlab.runs.listing import DEEPEST
    from distlab.runs.run import require_readable

    if not is_folder(args.folder):
        require_readable(args.folder)
        raise NotARunError(
            f"distlab runs lists a folder of runs, and {args.folder} is not a folder. Name the one "
            "in which distlab.record created its folders."
        )
    found = list(_listed(args.folder))
    if not found:
        example = args.folder / "first"
        print(
            f"No runs in {args.folder} and its subfolders, {DEEPEST} levels deep; links are not "
            f"followed. Record one: distlab demo --record {example}"
        )
        return 0
    found.sort(key=lambda one: -one["started"] if isinstance(one, dict) else math.inf)
    rows = [COLUMNS, *(_row(one, args.folder) for one in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    for row in rows:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
    return 0


def _listed(root: Path) -> Iterator[Summary | Unreadable]:
    from distlab.runs.listing import run_folders, summary_of

    for path in run_folders(root):
        yield summary_of(path)


def _name(path: Path, root: Path) -> str:
    return printable(str(path.relative_to(root)) if path != root else path.name)


def _row(summary: Summary | Unreadable, root: Path) -> tuple[str, ...]:
    if not isinstance(summary, dict):
        why = printable(summary.why)
        return _name(summary.path, root), "", "can't be read", "", "", "", "", why
    path = Path(summary["path"])
    rate = summary["rate"]
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    first = by_interest(summary["metrics"])[:3]
    metrics = [f"{name} {summary['metrics'][name]:.4g}" for name in first]
    return (
        _name(path, root),
        f"{datetime.fromtimestamp(summary['started'], UTC).astimezone():%Y-%m-%d %H:%M:%S}",
        summary["status"],
        f"{summary['steps']:,}".replace(",", " "),
        "-" if rate is None else printable(rate_text(rate)),
        str(max(summary["replicas"], default=0)),
        f"{size / 1e6:.1f} MB",
        plain(", ".join([*metrics, *gaps(summary)]), 200),
    )
