"""A run as one HTML file: the dashboard's page with its charts, which opens without a server."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from distlab.errors import MissingExtraError
from distlab.runs.exports.recorded import Recorded


def write(run: Recorded, path: Path) -> None:
    """Writes the page."""
    try:
        report = import_module("distlab.page.report")
    except ImportError as error:
        raise MissingExtraError(
            f"An HTML page needs the dashboard ({error.name} is missing). Install it: "
            'pip install "distlab[dashboard]".'
        ) from error
    report.write(run, run.path.name, path)
