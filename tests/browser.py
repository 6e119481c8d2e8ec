"""Finds a Chromium for the browser tests."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> Path | None:
    """Returns the path of Chromium: `$CHROMIUM`, on the search path, or Playwright's own."""
    named = os.environ.get("CHROMIUM")
    if named:
        return Path(named) if Path(named).is_file() else None
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return Path(found)
    return _playwright_chromium()


def _playwright_chromium() -> Path | None:
    """Returns the newest Chromium that `playwright install` has downloaded."""
    # Unlike Path.home, this does not raise for a user without a home.
    default = os.path.expanduser("~/.cache/ms-playwright")  # noqa: PTH111
    store = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or default)
    found = [p for p in store.glob("chromium-*/chrome-linux*/chrome") if p.is_file()]
    return max(found, key=lambda p: p.stat().st_mtime, default=None)


if __name__ == "__main__":
    browser = find_browser()
    sys.stdout.write(f"{browser or ''}\n")
    sys.exit(0 if browser else 1)
