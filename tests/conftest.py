"""What all tests share: eight CPU devices, and a browser for those that need one."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import jax
import pytest
from playwright.sync_api import Browser, sync_playwright

import distlab

# A script that starts the tests in the background has them ignore Ctrl-C, which tests press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Before any test module is imported: JAX reads the number of devices once.
distlab.use_cpu_devices(8)
os.environ["KERAS_BACKEND"] = "jax"  # Keras reads it when it is imported
pytest.register_assert_rewrite("tests.misuse.world")

# The same examples in each run; `make test ARGS=--hypothesis-profile=default` tries others.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")

from distlab.cluster import server  # noqa: E402
from distlab.control import loops  # noqa: E402
from distlab.devices.jax_internals import backend_started  # noqa: E402
from distlab.events import sink  # noqa: E402
from distlab.recording import RingRecorder  # noqa: E402
from tests import markers, recorded_by_workers  # noqa: E402
from tests.browser import find_browser  # noqa: E402

WORK = markers.Work()
MOST_PROGRAMS = 500
"""Compiled programs after which those that JAX keeps are dropped before the next module."""


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in markers.MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run the tests without markers alone; one that takes too long fails"
    parser.addoption("--quick", action="store_true", help=text)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(
        key=lambda item: not item.path.name.startswith("test_conformance")
    )  # the longest first
    for item in items:
        markers.mark(item)
    if config.option.quick:
        marked = [item for item in items if markers.is_marked(item)]
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if not markers.is_marked(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    folder = item.config._tmp_path_factory.getbasetemp().parent  # type: ignore[attr-defined]
    with markers.turn(folder, alone=item.get_closest_marker("measured") is not None):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    before = WORK.seconds()
    result = yield
    used = WORK.seconds() - before
    item.user_properties.append(("processor_seconds", round(used, 3)))
    if item.config.option.quick and used > markers.LIMIT_SECONDS:
        pytest.fail(f"took {used:.1f} s of processor time: shorten it, or have it marked")
    return result


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> None:
    """Leaves what lives before a module's tests out of garbage collections.

    In a process with all modules and the tests of hours, a full one would take a second. JAX keeps
    the program of each operation on each shape, 1.2 MB each: all tests' together took 4.8 GB.
    """
    if backend_started() and len(jax.devices()[0].client.live_executables()) > MOST_PROGRAMS:
        jax.clear_caches()
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_sigterm() -> Iterator[None]:
    """What SIGTERM does is after the test as it was before."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def own_servers() -> Iterator[None]:
    """Servers that an example starts are stopped after it, as when the reader's process ends."""
    yield
    for running in list(server._running.values()):
        running.stop()


@pytest.fixture(scope="session")
def chromium() -> Path:
    """The browser's executable; `make test` sees to it that there is one."""
    browser = find_browser()
    if browser is None:
        pytest.fail("no Chromium was found: run `make browser`, or set CHROMIUM=/path/to/chromium")
    return browser


FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser(chromium: Path) -> Iterator[Browser]:
    """One browser for all tests: Playwright can't be started twice in a thread."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(chromium), args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def workers_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that two processes with four devices each recorded together."""
    folder = tmp_path_factory.mktemp("workers") / "run"
    recorded_by_workers.record(folder)
    return folder


@pytest.fixture(autouse=True)
def no_loop_of_a_browser(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hides Playwright's event loop, which runs on between its calls, from tests without a page."""
    loop = asyncio._get_running_loop()
    if loop is None or "browser" in request.fixturenames:
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)


@pytest.fixture(autouse=True)
def own_program() -> Iterator[None]:
    """No click of a test belongs to the loops of the next one."""
    yield
    loops.own().begin_anew(interrupted=True)


@pytest.fixture(params=[False, True], ids=["traced", "eager"])
def eager(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Both modes: functions are compiled, or run as ordinary Python."""
    distlab.run_functions_eagerly(request.param)
    yield request.param
    distlab.run_functions_eagerly(False)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[RingRecorder]:
    """A new recorder, in force for the test; JAX's devices have started."""
    jax.devices()
    made = RingRecorder()
    monkeypatch.setattr(sink, "in_force", made)
    yield made
    made.metrics.flush()
    made.watcher.flush()
