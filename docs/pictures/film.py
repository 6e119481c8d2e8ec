"""Films `film.gif` of a real training and its page, and README.md's programs: `make screenshots`.

A batch is divided, advice names the slow replica, and its work is reduced.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Page, sync_playwright
from take import FLAGS, HERE, LIMIT_SECONDS, STOP_SECONDS, find_browser

SIZE = (1280, 780)
SHOWN = (960, 585)
CAPTION = 44
COLOURS = 256
SLOW, REDUCED = 300, 20
TRAINED_SECONDS = 40
Frame = tuple[Image.Image, int]
"""A picture, and how many milliseconds it is shown."""


@contextmanager
def served(*command: str) -> Iterator[str]:
    """Runs a program that prints the address of its page, until it or Ctrl-C ends it."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1]
            process.stdin.close()
            if "dashboard" not in command:  # a training ends in time
                process.wait(LIMIT_SECONDS)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)


def trained(folder: Path, rounds: int) -> tuple[str, ...]:
    """Returns the command that trains."""
    return (str(HERE / "slow_replica.py"), str(folder), str(rounds), str(TRAINED_SECONDS))


def framed(view: Page, caption: str, milliseconds: int) -> Frame:
    """Returns what the page shows, below a caption."""
    shot = Image.open(BytesIO(view.screenshot())).convert("RGB").resize(SHOWN, Image.LANCZOS)
    frame = Image.new("RGB", (SHOWN[0], SHOWN[1] + CAPTION), "#1b2330")
    frame.paste(shot, (0, CAPTION))
    font = ImageFont.load_default(22)
    ImageDraw.Draw(frame).text((20, 9), caption, font=font, fill="#ffffff")
    return frame, milliseconds


def turn(view: Page, url: str, page: str) -> None:
    """Shows one of the page's tabs."""
    view.goto(f"{url}#{page}")
    view.wait_for_selector(f"html[data-ready=true][data-shown={page}]")


def before(view: Page, url: str) -> Iterator[Frame]:
    """The batches, the advice, and the devices of the slow training."""
    turn(view, url, "batches")
    view.wait_for_timeout(3_000)
    for _ in range(6):
        view.wait_for_timeout(700)
        yield framed(view, "1  Each batch is divided over 8 replicas", 600)
    turn(view, url, "overview")
    view.wait_for_selector("text=/^slow replica$/")
    view.wait_for_timeout(1_000)
    yield framed(view, "2  Steps are slow. Advice names the replica, and what to do", 4_000)
    turn(view, url, "devices")
    view.wait_for_timeout(2_000)
    yield framed(view, "3  It computes, and the seven others wait for it", 3_000)


def after(view: Page, url: str) -> Iterator[Frame]:
    """The devices once the work of the slow replica is reduced."""
    turn(view, url, "devices")
    view.wait_for_timeout(12_000)
    yield framed(view, "4  Its work reduced: all compute alike", 3_000)


def compared(view: Page, url: str) -> Iterator[Frame]:
    """Both trainings side by side."""
    view.goto(url)
    view.wait_for_selector("table input[type=checkbox]")
    for box in reversed(view.locator("table input[type=checkbox]").all()):
        box.check()
    view.get_by_role("button", name="compare").click()
    numbers = view.locator("text=/^steps per second$/ >> visible=true").last
    numbers.scroll_into_view_if_needed()
    view.wait_for_timeout(3_000)
    yield framed(view, "5  Before and after, side by side", 4_000)


def picture_readme(view: Page, folder: Path) -> None:
    """Runs README.md's programs and takes the picture that each gives."""
    programs = re.findall(
        r"```python\n(.*?)```", (HERE.parents[1] / "README.md").read_text(), re.DOTALL
    )
    shown = (("first", "batches", 860), ("plain", "placement", 480))
    for (run, page, height), program in zip(shown, programs, strict=True):
        (folder / f"{run}.py").write_text(program)
        subprocess.run([sys.executable, f"{run}.py"], cwd=folder, check=True)
        with served("-m", "distlab", "dashboard", str(folder / "runs" / run), "--port", "0") as url:
            turn(view, url, page)
            view.wait_for_timeout(3_000)
            seen = {"x": 0, "y": 0, "width": SIZE[0], "height": height}
            view.screenshot(path=HERE / f"readme-{run}.png", clip=seen)


def main() -> None:
    """Films all scenes."""
    executable = find_browser()
    if executable is None:
        sys.exit("No Chromium was found: run `make browser`, or set CHROMIUM=/path/to/chromium.")
    frames: list[Frame] = []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder, trainings = Path(name), Path(name) / "trainings"
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        with browser.new_page(viewport={"width": SIZE[0], "height": 860}) as view:
            picture_readme(view, folder)
        scenes = (
            (trained(trainings / "before", SLOW), before),
            (trained(trainings / "after", REDUCED), after),
            (("-m", "distlab", "dashboard", str(trainings), "--port", "0"), compared),
        )
        for command, scene in scenes:
            width, height = SIZE
            view = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="light"
            )
            view.set_default_timeout(LIMIT_SECONDS * 1_000)
            with served(*command) as url:
                frames += scene(view, url)
            view.close()
        browser.close()
    whole = Image.new("RGB", (SHOWN[0], len(frames) * (SHOWN[1] + CAPTION)))
    for place, (frame, _) in enumerate(frames):
        whole.paste(frame, (0, place * frame.height))
    counted = whole.getcolors(whole.width * whole.height)
    assert counted is not None
    commonest = sorted(counted, reverse=True)[:COLOURS]  # a page has few colours, and flat ones
    palette = Image.new("P", (1, 1))
    palette.putpalette([level for _, colour in commonest for level in colour])
    pictures = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame, _ in frames]
    pictures[0].save(
        HERE / "film.gif",
        save_all=True,
        append_images=pictures[1:],
        duration=[milliseconds for _, milliseconds in frames],
        loop=0,
        optimize=True,
    )
    sys.stdout.write(f"{HERE / 'film.gif'}\n")


if __name__ == "__main__":
    main()
