"""One call that runs on several workers: its output while it runs, its results and its errors."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from distlab.errors import WorkerError

_POLL_SECONDS: Final = 0.02
_STUCK_SECONDS: Final = 0.5
"""Seconds that the others may go on after a worker has failed, before it publishes that."""
_UNTOLD_SECONDS: Final = 3.0
"""Seconds until they are interrupted where it can't; they may notice by themselves."""
_OUTPUT_SECONDS: Final = 5.0
_TOLD: Final = "WorkerError"
_ENDED: Final = "EngineError"


class Call:
    """A call that runs on some workers; `results` are ipyparallel's, by worker."""

    def __init__(self, results: Mapping[int, Any]) -> None:
        self.results = dict(results)
        # The results' own: the client forgets those of a call that has ended, which may be now.
        self._metadata = {w: _metadata_of(r) for w, r in self.results.items()}
        self._shown: dict[tuple[int, str], int] = {}
        self._failed: list[int] = []  # in the order in which they failed

    def wait(
        self, tell: Callable[[int, str], bool], interrupt: Callable[[list[int]], None]
    ) -> None:
        """Waits until all workers have ended, and prints what they print.

        A worker that fails publishes that, or the others, which may wait for it, are interrupted.
        """
        next_step: float | None = None
        pause = 0.0  # between interrupts: Python can lose one that comes in the middle of an import
        while not all(result.ready() for result in self.results.values()):
            time.sleep(_POLL_SECONDS)
            self._print()
            self._note_failures()
            if self._failed and next_step is None:
                next_step = time.monotonic() + _STUCK_SECONDS
            if next_step is None or time.monotonic() < next_step:
                continue
            if pause:
                interrupt(self.running())
                pause *= 2
            elif not tell(self._failed[0], message_of(self.results[self._failed[0]])):
                pause = _UNTOLD_SECONDS
            next_step = time.monotonic() + pause if pause else math.inf
        self._note_failures()
        for result in self.results.values():
            result.wait_for_output(_OUTPUT_SECONDS)
        self._print(whole=True)

    def running(self) -> list[int]:
        """Returns the workers that have not ended."""
        return [worker for worker, result in self.results.items() if not result.ready()]

    def ended(self) -> list[int]:
        """Returns the workers that have ended, with or without an error."""
        return [worker for worker, result in self.results.items() if result.ready()]

    def values(self, hosts: Mapping[int, str]) -> list[Any]:
        """Returns the results of the workers, in order."""
        if self._failed:
            self._print_tracebacks()
            worker = self._own_failures()[0]
            raise WorkerError(f"worker {worker}", hosts[worker], message_of(self.results[worker]))
        return [self.results[worker].get() for worker in sorted(self.results)]

    def show_last_values(self) -> None:
        """Shows the value of a cell's last expression, and pictures, for each worker."""
        import IPython.display

        display: Any = IPython.display.display
        for worker in sorted(self.results):
            metadata = self._metadata[worker]
            outputs = [*(metadata.get("outputs") or ())]
            last = metadata.get("execute_result")
            for content in [*outputs, *([last] if last else [])]:
                data = dict(content["data"])
                if set(data) <= {"text/plain"}:
                    print(_prefixed(worker, str(data.get("text/plain", ""))))
                else:
                    print(_prefixed(worker, ""))
                    display(data, metadata=content.get("metadata"), raw=True)

    def _note_failures(self) -> None:
        for worker, result in self.results.items():
            if result.ready() and not result.successful() and worker not in self._failed:
                self._failed.append(worker)

    def _print(self, *, whole: bool = False) -> None:
        for worker in sorted(self.results):
            for stream, file in (("stdout", sys.stdout), ("stderr", sys.stderr)):
                text = self._metadata[worker].get(stream) or ""
                begin = self._shown.get((worker, stream), 0)
                end = len(text) if whole else text.rfind("\n") + 1
                if end > begin:
                    print(_prefixed(worker, text[begin:end].rstrip("\n")), file=file)
                    self._shown[worker, stream] = end

    def _own_failures(self) -> list[int]:
        """Returns the workers that failed by themselves: the others failed because of these."""
        own = [w for w in self._failed if error_of(self.results[w])[0] != _TOLD]
        return own or self._failed

    def _print_tracebacks(self) -> None:
        """Prints each traceback once, as workers often fail alike; of others the message."""
        own = self._own_failures()
        same: dict[tuple[str, str], list[int]] = {}
        for worker in self._failed:
            same.setdefault(error_of(self.results[worker]), []).append(worker)
        for (name, _), workers in same.items():
            result = self.results[workers[0]]
            names = ", ".join(f"worker-{worker}" for worker in sorted(workers))
            traceback = getattr(result.exception(), "traceback", None)
            if workers[0] in own and name != _ENDED and traceback:
                print(f"[{names}]\n{traceback}", file=sys.stderr)
            else:
                print(f"[{names}] {message_of(result)}", file=sys.stderr)


def error_of(result: Any) -> tuple[str, str]:
    """Returns the class and the text of a failed worker's error."""
    error = result.exception()
    if _ENDED in (type(error).__name__, getattr(error, "ename", "")):
        return _ENDED, "Its process has ended: it was killed, or it crashed."
    if isinstance(error, KeyboardInterrupt):
        return "KeyboardInterrupt", ""
    return getattr(error, "ename", type(error).__name__), str(getattr(error, "evalue", error))


def message_of(result: Any) -> str:
    """Returns a failed worker's error as one text."""
    name, text = error_of(result)
    if name == _ENDED:
        return text
    return f"{name}: {text}" if text else name


def _prefixed(worker: int, text: str) -> str:
    return "\n".join(f"[worker-{worker}] {line}" for line in text.split("\n"))


def _metadata_of(result: Any) -> Any:
    """Returns what ipyparallel keeps of one worker's call, its output among it."""
    metadata = result.metadata
    return metadata[0] if isinstance(metadata, list) else metadata
