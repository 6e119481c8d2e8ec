"""The demo's tile in JupyterLab's launcher, as jupyter-server-proxy reads it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distlab import cli
from distlab._cli import demo, jupyter_proxy
from distlab._cli.jupyter_proxy import NAME, demo_tile

ROOT = Path(__file__).parents[2]
PAGE = "http://127.0.0.1:5123/user/someone/distlab/"
FILLED_IN = {"port": "5123", "base_url": "/user/someone/", "unix_socket": ""}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options with which the demo serves its page; nothing is trained or served."""
    options: dict[str, Any] = {}

    def serve(source: Any, **given: Any) -> SimpleNamespace:
        options.update(given)
        return SimpleNamespace(url=PAGE, view_url=f"{PAGE}?token=looks", stop=_nothing)

    monkeypatch.setattr(demo, "serve", serve)
    for left_out in ("prepare", "_train", "wait_for_interrupt"):
        monkeypatch.setattr(demo, left_out, _nothing)
    return options


def _nothing(*args: Any) -> None:
    pass


def command() -> list[str]:
    """The command, filled in as jupyter-server-proxy does it."""
    return [part.format(**FILLED_IN) for part in demo_tile()["command"]]


def test_the_entry_point_names_it() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert groups["jupyter_serverproxy_servers"] == {
        NAME: f"{demo_tile.__module__}:{demo_tile.__name__}"
    }


def test_a_click_starts_the_demo_behind_the_servers_prefix(
    served: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    python, *module, subcommand = command()[:4]
    assert (python, module, subcommand) == (sys.executable, ["-m", "distlab"], "demo")
    assert cli.main(command()[3:]) == 0
    assert served == {"port": 5123, "open_browser": False, "prefix": "/user/someone/distlab"}


def test_the_tile_has_a_path_a_picture_and_the_pages_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tile = demo_tile()
    assert tile["absolute_url"] is True
    assert tile["timeout"] >= 60
    assert "<svg" in Path(tile["launcher_entry"]["icon_path"]).read_text()
    headers = tile["request_headers_override"]
    assert {name: value.format(**FILLED_IN) for name, value in headers.items()} == {
        "Host": "127.0.0.1:5123",
        "Origin": "http://127.0.0.1:5123",
    }
    assert not any("origin" in part for part in command())
    monkeypatch.setattr(sys, "executable", "/odd {name}/python")
    assert command()[0] == "/odd {name}/python"


def test_there_is_no_tile_without_packages_of_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demo_tile()["launcher_entry"]["enabled"] is True
    monkeypatch.setattr(jupyter_proxy, "find_spec", lambda name: None if name == "panel" else True)
    assert demo_tile()["launcher_entry"]["enabled"] is False


def test_a_jupyter_server_loads_nothing_heavy_for_it() -> None:
    code = (
        "import sys; from distlab._cli.jupyter_proxy import demo_tile; demo_tile();"
        "print(sorted({'jax', 'panel', 'bokeh', 'sklearn', 'numpy'} & set(sys.modules)))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert printed.strip() == "[]"
