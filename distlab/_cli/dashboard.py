"""`distlab dashboard`: serves the dashboard of recorded runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from distlab._cli.options import HelpFormatter, add_server_options, file_path
from distlab._cli.serving import (
    HOST,
    TOKEN,
    VIEW_TOKEN,
    announce,
    empty_library,
    serve,
    wait_for_interrupt,
)
from distlab.text.paths import is_folder
from distlab.text.printable import printable

EPILOG = """\
example:
  $ distlab dashboard runs
  Dashboard: http://127.0.0.1:5006/
  Serving runs until Ctrl-C."""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "dashboard",
        help="show a recorded run, or a folder of them, in the dashboard",
        description="Serves the dashboard of a recorded run, finished or still being recorded,\n"
        "or of all runs in a folder and its subfolders, three levels deep, until Ctrl-C. Links in\n"
        "it are not followed. The folder may be empty at first.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "folder",
        type=file_path,
        metavar="RUN",
        help="folder of the recorded run, or a folder of runs",
    )
    add_server_options(parser)
    parser.add_argument(
        "--address", default=HOST, metavar="ADDRESS",
        help="address to listen on (default: %(default)s); others need a token",
    )  # fmt: skip
    parser.add_argument(
        "--token", metavar="TOKEN",
        help="token that browsers must present; part of the address (default: the environment "
        f"variable {TOKEN}, which other users of this machine can't see)",
    )  # fmt: skip
    parser.add_argument(
        "--view-token", metavar="TOKEN",
        help="second token, for pages that can look but not control (default: the environment "
        f"variable {VIEW_TOKEN})",
    )  # fmt: skip
    parser.add_argument(
        "--origin", action="append", default=[], metavar="HOST[:PORT]",
        help="another address at which browsers open the page, when a proxy serves it",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves the run until Ctrl-C and returns the exit code."""
    from distlab.runs.listing import DEEPEST, run_folders

    folder: Path = args.folder
    waits = (is_folder(folder) or _is_missing(folder)) and not any(run_folders(folder))
    server = serve(
        empty_library(folder) if waits else folder,
        port=args.port,
        open_browser=args.open,
        address=args.address,
        prefix=args.prefix,
        token=args.token,
        view_token=args.view_token,
        origins=tuple(args.origin),
    )
    announce(server)
    shown = printable(str(folder))
    if waits:
        print(
            f"No run is in {shown} and its subfolders, {DEEPEST} levels deep; links are not "
            "followed. The page lists runs as soon as they are recorded.",
            flush=True,
        )
    print(f"Serving {shown} until Ctrl-C.", flush=True)
    wait_for_interrupt()
    server.stop()
    print("Stopped.", flush=True)
    return 0


def _is_missing(folder: Path) -> bool:
    try:
        folder.lstat()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):  # no file can have such a name, or it may not be looked for
        return False
    return False
