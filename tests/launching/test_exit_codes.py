"""Descriptions of exit codes."""

from __future__ import annotations

from distlab.launching.exit_codes import described, for_shell, in_short

ABORTED = "JAX aborts a process when another one, or the coordinator, is lost"


def test_a_code_is_described() -> None:
    for code, words in [
        (0, "ended"),
        (2, "failed with exit code 2"),
        (-6, f"was aborted (SIGABRT, -6: {ABORTED})"),
        (-9, "was killed (SIGKILL, -9: by somebody, or by the kernel when memory ran out)"),
        (-2, "was interrupted (SIGINT, -2)"),
        (-15, "was terminated (SIGTERM, -15)"),
        (-10, "was killed (SIGUSR1, -10)"),
        (-40, "was killed (signal 40)"),
    ]:
        assert described(code) == words


def test_a_code_is_described_in_short() -> None:
    for code, words in [
        (0, "process ended with exit code 0"),
        (3, "process ended with exit code 3"),
        (-11, "process ended by SIGSEGV"),
        (-40, "process ended by signal 40"),
    ]:
        assert in_short(code) == words


def test_a_signal_becomes_the_code_that_shells_give_it() -> None:
    for code, shells in [(0, 0), (7, 7), (-9, 137), (-15, 143)]:
        assert for_shell(code) == shells
