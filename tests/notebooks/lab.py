"""A JupyterLab of its own: server, settings and files in one folder."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import nbformat
from playwright.sync_api import Page

START_LIMIT_S = 120
LIMIT_MS = 60_000
LIVE = ".distlab-live"
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
DRAWN = """
(canvas) => {
  if (!canvas.width || !canvas.height) return false
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
  return data.some((value, place) => place % 4 === 3 && value > 0)
}
"""
FACTS = """
(live) => ({
  batch: live.querySelector(".words p").textContent,
  steps: live.querySelector("header .quiet").textContent,
  sizes: Array.from(live.querySelectorAll(".amounts b")).map((size) => size.textContent),
  busy: document.querySelector(".jp-Notebook-ExecutionIndicator").dataset.status,
})
"""


class Lab:
    """JupyterLab on a free port of 127.0.0.1, until the `with` block ends."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "served"
        self.folder.mkdir(parents=True)
        self._home = home
        self._token = secrets.token_hex(16)
        self._log = home / "log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._set("notification", {"fetchNews": "false", "checkForUpdates": False})

    def use_theme(self, name: str) -> None:
        """Makes pages that are opened from now on `"Light"` or `"Dark"`."""
        self._set("themes", {"theme": f"JupyterLab {name}"})

    def send_comms_over_subshells(self, *, yes: bool) -> None:
        """Lets pages that are opened from now on reach a kernel that is busy, or not."""
        how = "perCommTarget" if yes else "disabled"
        self._set("kernels-settings", {"commsOverSubshells": how})

    def write(self, name: str, *cells: str) -> str:
        """Puts a notebook of code cells into the folder."""
        made = [nbformat.v4.new_code_cell(cell) for cell in cells]
        notebook = nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": KERNEL})
        nbformat.write(notebook, self.folder / name)
        return name

    def _set(self, plugin: str, values: dict[str, Any]) -> None:
        folder = self._home / "settings" / "@jupyterlab" / "apputils-extension"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{plugin}.jupyterlab-settings").write_text(json.dumps(values))

    def url(self, path: str) -> str:
        """The address of a page, with the token."""
        return f"http://127.0.0.1:{self._port}/{path}?token={self._token}"

    def request(self, path: str, method: str = "GET") -> Any:
        """What the server's own interface answers."""
        asked = urllib.request.Request(self.url(path), method=method)
        with urllib.request.urlopen(asked, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def __enter__(self) -> Self:
        folders = {
            "HOME": "home", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython",
            "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        }  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root",
                    "--ip=127.0.0.1", f"--port={self._port}", "--ServerApp.port_retries=0",
                    f"--IdentityProvider.token={self._token}",
                    f"--ServerApp.root_dir={self.folder}",
                ],
                env=os.environ | {key: str(self._home / name) for key, name in folders.items()},
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._wait_until_up()
        return self

    def _wait_until_up(self) -> None:
        pause, end = threading.Event(), time.monotonic() + START_LIMIT_S
        while True:
            try:
                self.request("api/status")
            except (urllib.error.URLError, OSError):
                alive = self._process.poll() is None and time.monotonic() < end
                assert alive, f"JupyterLab did not start:\n{self._log.read_text()}"
                pause.wait(0.1)
            else:
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30)


class Seen:
    """A page with a notebook, and what must not happen on it."""

    def __init__(self, page: Page, lab: Lab) -> None:
        self.page, self.lab = page, lab
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(LIMIT_MS)
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._check(request.url))
        page.on("websocket", lambda websocket: self._check(websocket.url))

    def _check(self, url: str) -> None:
        if not re.match(r"((http|ws)://127\.0\.0\.1:|blob:|data:)", url):
            self.foreign.append(url)

    def open(self, name: str) -> None:
        # A workspace for each notebook: JupyterLab opens again what was open in it.
        workspace = Path(name).stem
        self.page.goto(self.lab.url(f"lab/workspaces/{workspace}/tree/{name}"))
        self.page.wait_for_selector("text=/ipykernel.*Idle/")

    def choose(self, menu: str, entry: str) -> None:
        self.page.click(f".lm-MenuBar-itemLabel >> text={menu}")
        self.page.click(f".lm-Menu-itemLabel >> text=/^{entry}$/")

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.page.locator(LIVE).first.evaluate(FACTS)
        return found

    def run(self, name: str) -> None:
        """Opens a notebook and runs all of its cells; does not wait for their end."""
        self.open(name)
        self.choose("Run", "Run All Cells")

    def wait_until_idle(self) -> None:
        """Waits until all cells have run."""
        self.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")

    @property
    def busy(self) -> bool:
        """Whether a cell runs."""
        indicator = self.page.locator(".jp-Notebook-ExecutionIndicator")
        return indicator.get_attribute("data-status") == "busy"
