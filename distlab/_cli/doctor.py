"""`distlab doctor`: reports what is installed, what is wrong, and how to fix it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from distlab._cli.checks import CHECKS, Finding


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "doctor",
        help="check this machine: versions, devices, port, browser",
        description="Checks the requirements of distlab: versions, simulated devices (it starts 8 "
        "and sums over them), a free port for the dashboard, a browser, a folder for runs. "
        "Exits with code 1 when something is wrong; notes are about optional parts.",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the report and returns 1 when something is wrong, else 0."""
    del args
    wrong = 0
    for check in CHECKS:
        for finding in check():
            print("\n".join(lines(finding)), flush=True)
            wrong += finding.state == "wrong"
    print(summary(wrong), flush=True)
    return 1 if wrong else 0


def lines(finding: Finding) -> Iterable[str]:
    """Yields the finding, and its remedy on a line of its own."""
    beginning = f"{finding.state:<6}{finding.subject:<18}"
    yield beginning + finding.text
    if finding.remedy:
        yield f"{'':<{len(beginning)}}-> {finding.remedy}"


def summary(wrong: int) -> str:
    """Returns the last line of the report."""
    if wrong == 0:
        return "All is well."
    return "1 thing is wrong." if wrong == 1 else f"{wrong} things are wrong."
