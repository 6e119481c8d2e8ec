"""`distlab demo`: trains on simulated devices and serves the dashboard of it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlab._cli.options import HelpFormatter, add_server_options, file_path, positive
from distlab._cli.serving import announce, prepare, serve, wait_for_interrupt

if TYPE_CHECKING:
    from distlab.demo.digits import Digits
    from distlab.demo.training import Log

DEFAULT_EPOCHS = 60
LOG_SECONDS = 2.0

DESCRIPTION = """\
Trains a small network on 1,797 images of handwritten digits, with a MirroredStrategy
over simulated CPU devices, and serves a dashboard that shows how batches are divided,
how busy the devices are and what is reduced. After training it keeps serving until
Ctrl-C. The run is recorded to a folder."""

EPILOG = """\
example:
  $ distlab demo --steps 20 --record runs/first --exit-when-done
  Dashboard: http://127.0.0.1:5006/
  Training on 8 simulated CPU devices: 1,437 images, 64 a batch, 20 steps.
  step 20/20  45.5 steps/s  loss 1.0635
  Held-out accuracy: 0.8417 (303 of 360 images)
  Recorded in runs/first  (open it again: distlab dashboard runs/first)"""


def add_to(commands: Any) -> None:
    """Adds the subcommand to argparse's `commands`."""
    parser = commands.add_parser(
        "demo",
        help="train on 8 simulated devices with a live dashboard",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument(
        "--replicas",
        type=positive,
        default=8,
        metavar="N",
        help="number of CPU devices, each with one replica (default: %(default)s)",
    )
    length = parser.add_mutually_exclusive_group()
    length.add_argument(
        "--epochs",
        type=positive,
        metavar="N",
        help=f"passes over the training images (default: {DEFAULT_EPOCHS})",
    )
    length.add_argument(
        "--steps", type=positive, metavar="N", help="number of batches, instead of epochs"
    )
    add_server_options(parser)
    parser.add_argument("--no-dashboard", action="store_true", help="train without a dashboard")
    parser.add_argument(
        "--exit-when-done",
        action="store_true",
        help="exit after training instead of serving until Ctrl-C",
    )
    parser.add_argument(
        "--record",
        type=file_path,
        metavar="DIR",
        help="folder for the recorded run (default: runs/demo-<date>-<time>)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains, serves, and returns the exit code."""
    import distlab as dl
    from distlab.demo import digits as data
    from distlab.demo import training

    digits = data.load()  # first: its extra brings the dashboard's packages too
    if not args.no_dashboard:
        prepare(args.port)
    dl.use_cpu_devices(args.replicas)
    steps = args.steps or (args.epochs or DEFAULT_EPOCHS) * training.steps_per_epoch(digits)
    path = args.record or Path("runs") / time.strftime("demo-%Y%m%d-%H%M%S")
    server = None
    try:
        with dl.record(path, total_steps=steps) as recording:
            if not args.no_dashboard:
                server = serve(
                    recording, port=args.port, open_browser=args.open, prefix=args.prefix
                )
                announce(server)
            _train(digits, args.replicas, steps, recording)
        if recording.path is None:
            _say("Nothing was recorded: recording is off (DISTLAB_RECORD=off).")
        else:
            _say(f"Recorded in {path}  (open it again: distlab dashboard {path})")
        if server is not None and not args.exit_when_done:
            _say(f"Serving {server.url} until Ctrl-C.")
            wait_for_interrupt()
            _say("Stopped.")
    finally:
        if server is not None:
            server.stop()
    return 0


def _train(digits: Digits, replicas: int, steps: int, recording: Log) -> None:
    """Trains the demo's network and prints its accuracy on held-out images."""
    import distlab as dl
    from distlab.demo import training

    _say(
        f"Training on {replicas} simulated CPU devices: {len(digits.train_labels):,} images, "
        f"{training.BATCH} a batch, {steps:,} steps."
    )
    strategy = dl.MirroredStrategy()
    with strategy.scope():
        params = training.variables()
    training.train(strategy, params, digits, run=recording, steps=steps, report=_progress(steps))
    total = len(digits.test_labels)
    right = training.count_correct(strategy, params, digits.test_images, digits.test_labels)
    _say(f"Held-out accuracy: {right / total:.4f} ({right} of {total} images)")


def _progress(total: int) -> Callable[[int, Any], None]:
    """Returns a function that prints a line every two seconds, and at the end."""
    last_s, last = time.monotonic(), 0

    def report(done: int, loss: Any) -> None:
        nonlocal last_s, last
        seconds = time.monotonic() - last_s
        if seconds >= LOG_SECONDS or done == total:  # reading the loss waits for it
            rate = (done - last) / seconds
            _say(f"step {done:,}/{total:,}  {rate:.1f} steps/s  loss {float(loss):.4f}")
            last_s, last = time.monotonic(), done

    return report


def _say(text: str) -> None:
    print(text, flush=True)
