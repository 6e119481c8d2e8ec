"""A run as one HTML file, which opens offline: the dashboard's own page, with its charts."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from distlab.errors import MissingExtraError
from distlab.runs.exports.recorded import Recorded


def write(run: Recorded, path: Path) -> None:
    """Writes the page.

    Raises:
      MissingExtraError: what the page needs is not installed.
    """
    try:
        report = import_module("distlab.page.report")
    except ImportError as error:
        raise MissingExtraError(
            f"An HTML page needs the dashboard ({error.name} is missing). Install it: "
            'pip install "distlab[dashboard]".'
        ) from error
    report.write(run, run.path.name, path)
