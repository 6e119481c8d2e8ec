"""Argument types and options that several subcommands share."""

from __future__ import annotations

import argparse
from pathlib import Path


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of descriptions, and each option on the line of its help."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


def positive(text: str) -> int:
    """Reads a whole number of at least 1."""
    return _whole(text, 1, None)


def port(text: str) -> int:
    """Reads a TCP port, 1 to 65535."""
    return _whole(text, 1, 65535)


def folder(text: str) -> Path:
    """Reads a folder's name, `~` included."""
    return Path(text).expanduser()


def _whole(text: str, least: int, most: int | None) -> int:
    limits = f"from {least} to {most}" if most else f"of at least {least}"
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least or (most is not None and value > most):
        raise argparse.ArgumentTypeError(f"must be a whole number {limits}, got {text!r}")
    return value


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--port`, `--prefix` and `--open`, the options of a served dashboard."""
    parser.add_argument(
        "--port",
        type=port,
        metavar="N",
        help="port of 127.0.0.1 for the dashboard (default: the first free one from 5006)",
    )
    parser.add_argument(
        "--prefix", default="", metavar="PATH", help="path under which a proxy shows the page"
    )
    parser.add_argument(
        "--open", action="store_true", help="open the dashboard in the default browser"
    )
