"""Runs notebooks and stores them with outputs that show without a kernel: `make notebooks`."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from tests.browser import find_browser
from tests.notebooks.executed import FOLDER, LARGEST, execute, path_of

WIDE = 860


def main(names: list[str]) -> None:
    """Stores the notebooks whose names begin so, or all."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_browser(), args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        for name in names or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
            with tempfile.TemporaryDirectory() as folder:
                ran = execute(name, Path(folder))
            path = path_of(name)
            notebook = json.loads(path.read_text())
            for cell, done in zip(notebook["cells"], ran.cells, strict=True):
                if cell["cell_type"] == "code":
                    cell["outputs"] = _kept(done.outputs, browser)
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
            sys.stdout.write(f"{path}: {path.stat().st_size / 1e3:.0f} kB\n")


def _kept(outputs: list[Any], browser: Browser) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue  # which lines come depends on how fast processes start
        if output.output_type == "stream":
            if kept and kept[-1].get("name") == output.name:
                kept[-1]["text"] += output.text.splitlines(keepends=True)
            else:
                text = output.text.splitlines(keepends=True)
                kept.append({"name": output.name, "output_type": "stream", "text": text})
            continue
        data = {kind: text for kind, text in output.data.items() if kind.startswith("text/")}
        html = data.get("text/html", "")
        if len(html) > LARGEST or "<script" in html or "<iframe" in html:
            del data["text/html"]
            data["image/png"] = _picture(html, browser)
        split = {
            kind: text if kind == "image/png" else text.splitlines(keepends=True)
            for kind, text in sorted(data.items())
        }
        kept.append({"data": split, "metadata": {}, "output_type": "display_data"})
        if output.output_type == "execute_result":
            kept[-1] |= {"execution_count": None, "output_type": "execute_result"}
    return kept


def _picture(html: str, browser: Browser) -> str:
    """Returns what a browser shows of an output whose scripts a viewer would remove."""
    with browser.new_page(viewport={"width": WIDE, "height": 400}) as page:
        page.set_content(f"<body style='margin:0'>{html}</body>")
        page.wait_for_timeout(2_000)
        shot = page.locator("body > *").first.screenshot()
    return base64.b64encode(shot).decode()


if __name__ == "__main__":
    main(sys.argv[1:])
