"""`distlab compare`: recorded runs side by side.

Example:
  >>> import distlab as dl
  >>> from distlab.cli import main
  >>> for name, rate in (("first", 0.1), ("second", 0.2)):
  ...     with dl.record(f"runs/{name}", config={"learning_rate": rate}) as recording:
  ...         recording.log(0, loss=0.5)
  >>> main(["compare", "runs/first", "runs/second"])
                             first         second
  learning_rate              0.1           0.2
  ...
  0
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import Any

from distlab._cli.options import HelpFormatter, file_path

EPILOG = """\
example:
  $ distlab compare runs/first runs/second
                       first                second
  devices              8 simulated devices  3 simulated devices
  steps                121                  121                  same
  ..."""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "compare",
        help="show recorded runs side by side",
        description="Shows recorded runs side by side: the settings that differ first, and then\n"
        "the numbers of all runs.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("folder", type=file_path, metavar="RUN", help="folder of a recorded run")
    parser.add_argument(
        "others", type=file_path, metavar="RUN", nargs="+", help="folders of the others"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the comparison and returns the exit code."""
    from distlab import Run
    from distlab.text.printable import printable

    with ExitStack() as opened:
        first, *others = (
            opened.enter_context(Run.open(path)) for path in (args.folder, *args.others)
        )
        print("\n".join(map(printable, str(first.compare(*others)).splitlines())))
    return 0
