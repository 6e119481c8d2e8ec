"""`distlab doctor`: reports what is installed, what is wrong, and how to fix it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from distlab._cli.options import HelpFormatter
from distlab._cli.serving import HOST
from distlab_dashboard.ports import PORTS, refusal

EPILOG = """\
example:
  $ distlab doctor
  ok    python            3.11.7 (virtual environment: /home/me/distlab/.venv)
  ok    distlab           0.1.0
  ...
  All is well."""

PROBED_DEVICES = 8
PROBE_SECONDS = 120.0

_IN_STACK = re.compile(r"\s*$|\s+@ |\*\*\* ")

NEWEST_PYTHON = (3, 14)
"""The newest version of Python that distlab was tested with."""

EXTRAS = ("dashboard", "notebook", "keras", "flax", "checkpoint", "cluster", "loggers")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    state: Literal["ok", "note", "wrong"]  # a note: an optional part is missing
    subject: str
    text: str
    remedy: str = ""


def python_version() -> Iterator[Finding]:
    """Reports Python's version and whether this is a virtual environment."""
    if sys.version_info[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        text = f"{platform.python_version()}; distlab was tested with 3.11 to {newest}"
        yield Finding("wrong", "python", text, f"make the environment with Python {newest}")
        return
    place = "virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    yield Finding("ok", "python", f"{platform.python_version()} ({place}: {sys.prefix})")


def packages() -> Iterator[Finding]:
    """Reports the versions of distlab and of what it requires, optional packages included."""
    yield Finding("ok", "distlab", metadata.version("distlab"))
    seen = set()
    for requirement in map(Requirement, metadata.requires("distlab") or ()):
        extra = _extra_of(requirement)
        if extra is None or requirement.name in seen:
            continue
        seen.add(requirement.name)
        yield _of_package(requirement.name, requirement.specifier, extra)


def _extra_of(requirement: Requirement) -> str | None:
    """Returns the extra that needs a package, "" for distlab itself, None for no user's."""
    marker = requirement.marker
    if marker is None:
        return ""
    return next((extra for extra in EXTRAS if marker.evaluate({"extra": extra})), None)


def _of_package(name: str, tested: SpecifierSet, extra: str) -> Finding:
    version = installed_version(name)
    if version is None and extra:
        text = f"not installed; the extra '{extra}' needs it"
        return Finding("note", name, text, f"pip install 'distlab[{extra}]'")
    if version is None:
        return Finding("wrong", name, "not installed", "pip install --force-reinstall distlab")
    if tested.contains(version, prereleases=True):
        return Finding("ok", name, version)
    text = f"{version}; distlab was tested with {tested}, and may fail with others"
    return Finding("wrong", name, text, f"pip install '{name}{tested}'")


def devices() -> Iterator[Finding]:
    """Starts CPU devices in another process and sums over them."""
    command = [sys.executable, "-m", "distlab._cli.probe", str(PROBED_DEVICES)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"{PROBED_DEVICES} CPU devices computed no sum within {PROBE_SECONDS:.0f} s"
        remedy = (
            "unset XLA_FLAGS and PJRT_NPROC, close programs that keep the cores busy, try again"
        )
        yield Finding("wrong", "devices", text, remedy)
        return
    if done.returncode != 0:
        # Where XLA ends the process, it prints its stack below the reason.
        printed = [line for line in done.stderr.splitlines() if not _IN_STACK.match(line)]
        text = printed[-1] if printed else f"the process ended with code {done.returncode}"
        remedy = "follow the message; check XLA_FLAGS, JAX_PLATFORMS and PJRT_NPROC"
        yield Finding("wrong", "devices", text, remedy)
        return
    found = json.loads(done.stdout.splitlines()[-1])
    names = found["devices"]
    text = f"{len(names)} simulated ({names[0]} to {names[-1]}) on {os.cpu_count()} cores"
    if found["sum"] != len(names):
        wrong = f"a one on each of {len(names)} devices sums to {found['sum']}"
        yield Finding("wrong", "devices", wrong, "pip install --upgrade jax jaxlib")
        return
    yield Finding("ok", "devices", f"{text}; a sum over them is right")
    yield Finding("ok", "threads", f"PJRT_NPROC={found['threads']} for {len(names)} devices")


def ports() -> Iterator[Finding]:
    """Reports the port that the dashboard would use."""
    for port in PORTS:
        if not refusal(HOST, port):
            taken = "" if port == PORTS[0] else f" ({PORTS[0]} to {port - 1} taken)"
            yield Finding("ok", "port", f"{port} is free on {HOST}{taken}")
            return
    text = f"{PORTS[0]} to {PORTS[-1]} are all taken on {HOST}"
    remedy = "stop dashboards that are no longer needed, or use --port 0 for any free port"
    yield Finding("wrong", "port", text, remedy)


def folder() -> Iterator[Finding]:
    """Reports whether runs can be recorded under the working folder."""
    here = Path.cwd()
    runs = here / "runs"
    place = runs if runs.is_dir() else here
    if os.access(place, os.W_OK | os.X_OK):
        yield Finding("ok", "runs", f"can be recorded in {runs}")
    else:
        remedy = "change to a folder that you can write to, or name one with --record"
        yield Finding("wrong", "runs", f"can't be recorded in {place}: not writable", remedy)


def gpus() -> Iterator[Finding]:
    """Compares what distlab shows of each GPU with what is so."""
    import jax

    from distlab._cli.gpu import measured

    found = [device for device in jax.local_devices() if device.platform == "gpu"]
    if not found:
        yield Finding(
            "note", "gpu", "JAX finds none", 'pip install "jax[cuda13]" on such a machine'
        )
    for device in found:
        yield Finding("ok", "gpu", f"{device.device_kind}, {device}")
        for state, subject, text in measured(device):
            remedy = "" if state != "wrong" else "report it, with this text"
            yield Finding(state, f"gpu {subject}", text, remedy)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python_version,
    packages,
    devices,
    ports,
    folder,
)


def installed_version(name: str) -> str | None:
    """Returns an installed package's version, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "doctor",
        help="check this machine: versions, devices, port",
        description="Checks the requirements of distlab: versions, simulated devices (it starts 8\n"
        "and sums over them), a free port for the dashboard, a folder for runs. Exits with\n"
        "code 1 when something is wrong; notes are about optional parts.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--gpu",
        action="store_true",
        help="also check memory, utilization, ready times and captures of GPUs",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the report and returns 1 when something is wrong, else 0."""
    wrong = 0
    for check in (*CHECKS, gpus) if args.gpu else CHECKS:
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
