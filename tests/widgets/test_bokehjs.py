"""BokehJS as it is sent to pages."""

from __future__ import annotations

import gzip

import bokeh

from distlab.widgets import _bokehjs


def test_it_is_the_installed_version_and_small() -> None:
    script = _bokehjs.script()
    assert len(script) < 500_000
    assert f'"{bokeh.__version__}"' in gzip.decompress(script).decode()


def test_it_is_read_once() -> None:
    assert _bokehjs.script() is _bokehjs.script()
