"""The command `distlab`.

Exit codes: 0 for success, 1 for a problem that `distlab doctor` found, 2 for an
invalid request, 130 for work that Ctrl-C interrupted, 141 where nobody reads the
output any more. `distlab launch` has the exit code of the program it runs.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import metadata

from distlab._cli import advise, compare, dashboard, demo, doctor, export, launch, runs, server
from distlab._cli.options import HelpFormatter
from distlab.errors import DistlabError
from distlab.text.printable import printable

INTERRUPTED = 130
BROKEN_PIPE = 141

DESCRIPTION = "Distributed training on JAX with the names of tf.distribute, made visible."

FIVE = f"""\
{DESCRIPTION}

  distlab demo                           train on 8 simulated devices, and watch it in a browser
  with dl.record("runs/first"): ...      in your own program: record its training
  distlab dashboard runs                 look at what was recorded, live or afterwards
  distlab advise runs/first              what slows it down or is wrong, with remedies
  distlab export runs/first -o run.html  show it to a colleague

`distlab --help` lists all commands; `distlab doctor` checks the installation."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command."""
    if argv is None:
        warnings.showwarning = _show_warning
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):  # names need not fit a terminal's encoding
            sys.stdout.reconfigure(errors="backslashreplace")
        code = 0
        if args.run is None:
            print(FIVE)
        else:
            code = int(args.run(args))
        print(end="", flush=True)  # a reader that has gone shows here, not when Python ends
        return code
    except DistlabError as error:
        print(f"distlab: error: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who reads the output has enough, such as `head`
        # What is still in the buffer would raise when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("distlab: interrupted", file=sys.stderr)
        return INTERRUPTED


def _show_warning(message: Warning | str, *_place: object, **_written: object) -> None:
    """Prints a warning as the command prints errors, without the line of Python that warns."""
    print(f"distlab: warning: {printable(str(message))}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distlab",
        description=DESCRIPTION,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"distlab {metadata.version('distlab')}"
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands")
    for command in (demo, launch, server, dashboard, runs, compare, advise, export, doctor):
        command.add_to(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
