"""The time bar over all pages: live, pause, another moment, a range, play, and its address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distlab.events import Event, Step, Unknown
from distlab_dashboard import DashboardServer, serve
from tests.synthetic import START_NS, whole_run
from tests.ui.conftest import Pages, Watched, ended, serving


def steps_until(events: list[Event | Unknown], at_s: float, since_s: float = 0.0) -> int:
    low, high = START_NS + round(since_s * 1e9), START_NS + round(at_s * 1e9)
    return sum(isinstance(event, Step) and low <= event.time_ns <= high for event in events)


@pytest.fixture(scope="module")
def finished() -> Iterator[DashboardServer]:
    with serving(ended(whole_run(60))) as made:
        yield made


def move_to(page: Watched, seconds: float) -> None:
    """Moves the slider as a hand does: it has steps of its own."""
    page.page.locator(".moment").evaluate(
        "(slider, at) => { slider.value = at; slider.dispatchEvent(new Event('input')) }", seconds
    )


def test_moments_and_ranges_are_shown_as_they_were(
    finished: DashboardServer, new_page: Pages
) -> None:
    page = new_page().open(finished.url)
    page.wait_for_text("steps", "60 of 60")
    assert page.page.locator(".now").inner_text() == "Whole run"
    move_to(page, 0.6)
    at = float(page.page.locator(".moment").input_value())
    then = steps_until(whole_run(60), at)
    assert 30 < then < 45
    page.wait_for_text("steps", f"{then} of 60")
    assert page.page.locator(".moment-text").inner_text().startswith("0.60 s of ")
    page.tab("batches")
    page.wait_for_text("batch_number", str(then - 1))
    page.tab("overview")
    page.page.fill(".since", "0.4")
    page.page.keyboard.press("Enter")
    page.wait_for_text("steps", f"{steps_until(whole_run(60), at, 0.4)} of 60")
    assert page.page.locator(".moment-text").inner_text().startswith("0.40 s to 0.60 s of ")
    assert page.page.locator(".now").get_attribute("aria-pressed") == "false"
    page.tab("batches")
    page.page.click(".now")
    page.wait_for_text("batch_number", "59")
    assert page.text("status_text") == "finished"
    page.tab("overview")
    page.page.focus(".moment")
    for _ in range(20):
        page.page.keyboard.press("PageDown")
    page.page.wait_for_selector(".timebar[data-past=true]")
    page.page.select_option(".speed", "0.25")
    page.page.click(".play")
    page.page.wait_for_selector(".play[data-playing=true]")
    page.page.wait_for_selector(".play[data-playing=false]")
    page.page.focus(".now")
    page.page.keyboard.press("Enter")
    page.wait_for_text("steps", "60 of 60")


def test_an_address_has_page_moment_range_and_batch(
    finished: DashboardServer, new_page: Pages
) -> None:
    page = new_page().open(f"{finished.url}#batches?at=0.6&from=0.3&batch=25")
    page.wait_for_text("batch_number", "25")
    assert page.page.locator('section[data-page="batches"]').is_visible()
    assert page.page.locator(".since").input_value() == "0.3"
    page.page.click('button[data-move="1"]')
    page.wait_for_text("batch_number", "26")
    assert page.page.url.endswith("#batches?batch=26&at=0.6&from=0.3")
    page.tab("overview")
    count = steps_until(whole_run(60), 0.6, 0.3)
    page.wait_for_text("steps", f"{count} of 60")
    page.page.reload()
    page.page.wait_for_selector("html[data-ready=true]")
    page.wait_for_text("steps", f"{count} of 60")
    page.page.goto(f"{finished.url}#overview?at=1000&from=900")  # behind the end
    page.page.reload()
    page.page.wait_for_selector(".timebar[data-past=true]")
    page.page.wait_for_function("() => Number(document.querySelector('.moment').max) > 0.5")
    text = page.page.locator(".moment-text").inner_text().removesuffix(", reading\u2026")
    shown, _, end = text.partition(" of ")
    assert end.endswith(" s")
    assert set(shown.split(" to ")) == {end}


_SIGNS_OF_THE_OUTAGE = ("ERR_CONNECTION", "WebSocket", "Lost websocket", "not connected", "401")


def test_a_page_that_loses_its_server_shows_it_and_comes_back(new_page: Pages) -> None:
    source = ended(whole_run(60))
    first = serve(source, port=0, token="a long token")  # a port that nobody else takes meanwhile
    page = new_page().open(f"{first.url}#batches?batch=22")
    page.wait_for_text("batch_number", "22")
    first.stop()
    page.page.get_by_text("No connection", exact=True).wait_for()
    page.wait_for_text("status_text", "no connection")
    assert "keeps trying to reconnect" in page.text("trouble")
    second = serve(source, port=first.port, token="a long token")
    try:
        page.wait_for_text("status_text", "finished")
        page.wait_for_text("batch_number", "22")
        page.errors[:] = [error for error in page.errors if not _is_of_the_outage(error)]
    finally:
        page.page.close()
        second.stop()


def _is_of_the_outage(error: str) -> bool:
    return any(sign in error for sign in _SIGNS_OF_THE_OUTAGE)
