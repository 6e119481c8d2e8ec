"""Argument types and options that several subcommands share."""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

from distlab.launching.environment import MOST
from distlab.text.paths import at_home


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions, and each option on the line of its help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def _whole(text: str, least: int, most: int | None) -> int:
    """Parses a whole number."""
    limits = f"from {least} to {most}" if most else f"of at least {least}"
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least or (most is not None and value > most):
        raise argparse.ArgumentTypeError(f"must be a whole number {limits}, got {text!r}")
    return value


positive = partial(_whole, least=1, most=None)
whole = partial(_whole, least=0, most=None)
processes = partial(_whole, least=1, most=MOST)
port = partial(_whole, least=0, most=65_535)
"""A TCP port; 0 stands for any free one."""


def seconds(text: str) -> float:
    """Parses a number of seconds, at least 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, at least 0, got {text!r}")
    return value


def file_path(text: str) -> Path:
    """Parses the path of a folder or file, which may begin with `~`."""
    return Path(at_home(text))


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--port`, `--prefix` and `--open`, the options of a served dashboard."""
    parser.add_argument(
        "--port",
        type=port,
        metavar="N",
        help="port of the dashboard, 0 for any free one (default: the first free one from 5006)",
    )
    parser.add_argument(
        "--prefix", default="", metavar="PATH", help="path at which a proxy serves the page"
    )
    parser.add_argument(
        "--open", action="store_true", help="open the dashboard in the default browser"
    )
