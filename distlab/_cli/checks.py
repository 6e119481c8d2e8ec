"""What `distlab doctor` looks at, one function each."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from distlab._cli.browser import find_browser
from distlab._cli.serving import port_is_free

FIRST_PORT = 5006
PORTS_TRIED = 20
PROBED_DEVICES = 8
PROBE_SECONDS = 120.0

CORE = ("distlab", "jax", "jaxlib", "numpy", "msgspec", "grain")
EXTRAS = {
    "dashboard": ("panel", "bokeh"),
    "notebook": ("ipywidgets", "anywidget", "jupyterlab"),
    "demo": ("scikit-learn",),
}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    Attributes:
      state: `"ok"`, `"note"` (something optional is not there) or `"wrong"`.
      subject: what was looked at.
      text: what was found.
      remedy: what to do about it; empty when it is fine.
    """

    state: Literal["ok", "note", "wrong"]
    subject: str
    text: str
    remedy: str = ""


def python_version() -> Iterator[Finding]:
    """Tells Python's version and whether this is a virtual environment."""
    place = "virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    yield Finding("ok", "python", f"{platform.python_version()} ({place}: {sys.prefix})")


def core_versions() -> Iterator[Finding]:
    """Tells the versions of the packages that distlab can't do without."""
    versions = {name: installed_version(name) for name in CORE}
    for name, version in versions.items():
        if version is None:
            remedy = "pip install --force-reinstall distlab"
            yield Finding("wrong", name, "not installed", remedy)
        else:
            yield Finding("ok", name, version)
    if versions["jax"] and versions["jaxlib"] and versions["jax"] != versions["jaxlib"]:
        text = f"jax {versions['jax']} with jaxlib {versions['jaxlib']}"
        yield Finding("wrong", "jax", text, "pip install --upgrade jax jaxlib")


def extras() -> Iterator[Finding]:
    """Tells which optional parts are installed."""
    for extra, names in EXTRAS.items():
        for name in names:
            version = installed_version(name)
            if version is None:
                text = f"not installed; the extra '{extra}' needs it"
                yield Finding("note", name, text, f"pip install 'distlab[{extra}]'")
            else:
                yield Finding("ok", name, version)


def devices() -> Iterator[Finding]:
    """Starts CPU devices in a process of their own and sums over them."""
    command = [sys.executable, "-m", "distlab._cli.probe", str(PROBED_DEVICES)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"{PROBED_DEVICES} CPU devices gave no sum within {PROBE_SECONDS:.0f} s"
        remedy = "unset XLA_FLAGS and PJRT_NPROC, close what keeps the cores busy, and try again"
        yield Finding("wrong", "devices", text, remedy)
        return
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        text = said[-1] if said else f"the process ended with code {done.returncode}"
        remedy = "do what the message says; XLA_FLAGS, JAX_PLATFORMS and PJRT_NPROC matter here"
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
    """Tells the port that the dashboard would take."""
    last = FIRST_PORT + PORTS_TRIED - 1
    for port in range(FIRST_PORT, last + 1):
        if port_is_free(port):
            taken = "" if port == FIRST_PORT else f" ({FIRST_PORT} to {port - 1} taken)"
            yield Finding("ok", "port", f"{port} is free on 127.0.0.1{taken}")
            return
    text = f"{FIRST_PORT} to {last} are all taken on 127.0.0.1"
    remedy = "stop dashboards that are no longer needed, or name another with --port"
    yield Finding("wrong", "port", text, remedy)


def browser() -> Iterator[Finding]:
    """Tells which Chromium the browser tests would drive."""
    found = find_browser()
    if found is not None:
        yield Finding("ok", "browser", str(found))
        return
    text = "no Chromium found; only the browser tests need it, any browser shows the pages"
    yield Finding("note", "browser", text, "make browser, or set CHROMIUM=/path/to/chromium")


def folder() -> Iterator[Finding]:
    """Tells whether runs can be recorded under the working folder."""
    here = Path.cwd()
    runs = here / "runs"
    place = runs if runs.is_dir() else here
    if os.access(place, os.W_OK | os.X_OK):
        yield Finding("ok", "runs", f"can be recorded in {runs}")
    else:
        remedy = "go to a folder you may write in, or name one with --record"
        yield Finding("wrong", "runs", f"can't be recorded in {place}: not writable", remedy)


CHECKS: tuple[Callable[[], Iterator[Finding]], ...] = (
    python_version,
    core_versions,
    extras,
    devices,
    ports,
    browser,
    folder,
)


def installed_version(name: str) -> str | None:
    """Returns an installed package's version, None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
