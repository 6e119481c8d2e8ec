"""`distlab dashboard`: serves the dashboard of recorded runs."""

from __future__ import annotations

import argparse
from typing import Any

from distlab._cli.options import HelpFormatter, add_server_options, file_path
from distlab._cli.serving import HOST, TOKEN, VIEW_TOKEN, serve, wait_for_interrupt

EPILOG = """\
examples:
  distlab dashboard runs/demo-20260101-120000 --open
  distlab dashboard runs
  DISTLAB_TOKEN=... distlab dashboard runs --address 0.0.0.0"""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "dashboard",
        help="show a recorded run, or a folder of them, in the dashboard",
        description="Serves the dashboard of a recorded run, finished or still being recorded,\n"
        "or of all runs in a folder and its subfolders, three levels deep, until Ctrl-C. Links in\n"
        "it are not followed.",
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
        help="token that browsers must present; part of the address (default: what the "
        f"environment variable {TOKEN} says, which users of this machine can't see)",
    )  # fmt: skip
    parser.add_argument(
        "--view-token", metavar="TOKEN",
        help="second token, for pages that may look and not control (default: that of the "
        f"environment variable {VIEW_TOKEN})",
    )  # fmt: skip
    parser.add_argument(
        "--origin", action="append", default=[], metavar="HOST[:PORT]",
        help="another address at which browsers open the page, when a proxy serves it",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serves the run until Ctrl-C and returns the exit code."""
    server = serve(
        args.folder,
        port=args.port,
        open_browser=args.open,
        address=args.address,
        prefix=args.prefix,
        token=args.token,
        view_token=args.view_token,
        origins=tuple(args.origin),
    )
    print(f"Dashboard: {server.url}", flush=True)
    if server.view_url:
        print(f"To look only: {server.view_url}", flush=True)
    print(f"Serving {args.folder} until Ctrl-C.", flush=True)
    wait_for_interrupt()
    server.stop()
    print("Stopped.", flush=True)
    return 0
