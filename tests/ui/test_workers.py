"""A run of several processes in a real browser, while they record."""

from __future__ import annotations

from pathlib import Path

from distlab.runs.run_file import RunFile
from tests.several_workers import several
from tests.ui.conftest import Pages, Served, Watched

DEVICES = [f"worker {worker} CPU:{n}" for worker in range(2) for n in range(4)]


def wait_for_row(page: Watched, table: str, beginning: str, text: str) -> None:
    page.page.wait_for_function(
        "([table, beginning, text]) => [...document.querySelector(table).tBodies[0].rows]"
        ".some((row) => row.cells[0].textContent === beginning && row.textContent.includes(text))",
        arg=[table, beginning, text],
    )


def test_pages_follow_the_files_of_several_processes(
    tmp_path: Path, served: Served, new_page: Pages
) -> None:
    first, second = several(60)
    half, width = len(first) // 2, 800
    folder = tmp_path / "run"
    chief = RunFile(folder, "run", process=0, processes=2)
    chief.write(first[:half])
    page = new_page(width=width, scheme="dark").open(f"{served(folder).url}#workers")
    wait_for_row(page, ".workers", "worker 0", "recording")
    wait_for_row(page, ".workers", "worker 1", "has recorded nothing yet")
    assert page.page.locator(".tabs a[data-page=workers]").is_visible()
    worker = RunFile(folder, "run", process=1, processes=2)
    worker.write(second[:half])
    wait_for_row(page, ".workers", "worker 1", "recording")
    chief.write(first[half:])
    worker.write(second[half:])
    wait_for_row(page, ".workers", "worker 0", "finished")
    wait_for_row(page, ".workers", "worker 1", "finished")
    chief.close()
    worker.close()
    shown = page.rows(".workers")
    assert [(row[0], row[2], row[3], row[-1]) for row in shown] == [
        ("worker 0", "0 to 3", "60", "finished"),
        ("worker 1", "4 to 7", "60", "finished"),
    ]
    ways = [(row[0], row[1], row[-1]) for row in page.rows(".links")]
    assert ways == [
        ("worker 0", "worker 1", "crosses"),
        ("worker 1", "worker 0", "crosses"),
        ("worker 0", "worker 0", "stays inside"),
        ("worker 1", "worker 1", "stays inside"),
    ]
    assert page.text("workers").startswith("2 processes on ")
    assert page.serious() == []
    page.tab("devices")
    page.page.wait_for_selector('section[data-page="devices"] canvas', state="attached")
    assert page.data("devices", "devices")["device"] == DEVICES
    page.tab("steps")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    page.tab("overview")
    page.wait_for_text("steps", "60 of 60")
    assert page.errors == []
