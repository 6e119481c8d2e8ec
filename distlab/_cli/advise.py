"""`distlab advise`: possible improvements of a recorded run.

Example:
  >>> import distlab as dl
  >>> from distlab.cli import main
  >>> with dl.record("runs/first") as recording:
  ...     recording.log(0, loss=0.5)
  >>> main(["advise", "runs/first"])
  Advice needs steps, and the run recorded none.
  0
"""

from __future__ import annotations

import argparse
from typing import Any

from distlab._cli.options import HelpFormatter, file_path

EPILOG = """\
example:
  $ distlab advise runs/slow
  1. slow_replica: Replica 5 (CPU:5) has 19.1 times the work of the others in each step: ...
     Reduce its work, or find what else runs on its device: all others wait for it in every step.
     ..."""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "advise",
        help="list possible improvements of a recorded run",
        description="Analyses a recorded run, finished or still being recorded, and lists\n"
        "possible improvements: the observation, the numbers behind it, and the\n"
        "remedy. docs/advice.md explains each finding.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("folder", type=file_path, metavar="RUN", help="folder of the recorded run")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the findings and returns the exit code."""
    from distlab import Run
    from distlab.advice import evidence_text
    from distlab.text.printable import printable

    with Run.open(args.folder) as recorded:
        found = recorded.advice()
        any_step = found or recorded.summary()["steps"] or any(recorded.events("closures"))
    if not any_step:
        print("Advice needs steps, and the run recorded none.")
    elif not found:
        print("Nothing to advise: no straggler, no waiting for input, no needless work was found.")
    for number, one in enumerate(found, 1):
        steps = f" (steps {one.steps[0]} to {one.steps[1]})" if one.steps else ""
        print(printable(f"{number}. {one.cause}: {one.text}{steps}"))
        print(printable(f"   {one.remedy}"))
        print(printable(f"   {evidence_text(one)}"))
    return 0
