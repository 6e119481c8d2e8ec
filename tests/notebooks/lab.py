"""A JupyterLab of its own: server, settings and files in one folder."""

from __future__ import annotations

import json
import os
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

START_LIMIT_S = 120


class Lab:
    """JupyterLab on a free port of 127.0.0.1, until the `with` block ends.

    Attributes:
      folder: what it serves.
    """

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
        with urllib.request.urlopen(asked, timeout=30) as answer:
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
