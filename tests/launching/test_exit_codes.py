"""Descriptions of exit codes."""

from __future__ import annotations

from distlab.launching.exit_codes import described, for_shell, in_short

ABORTED = "JAX aborts a process when another one, or the coordinator, is lost"


def test_a_code_is_described() -> None:
    for code, words, short in [
        (0, "ended", "with exit code 0"),
        (2, "failed with exit code 2", "with exit code 2"),
        (-6, f"was killed by SIGABRT: {ABORTED}", "by SIGABRT"),
        (-15, "was killed by SIGTERM", "by SIGTERM"),
        (-40, "was killed by signal 40", "by signal 40"),
    ]:
        assert described(code) == words
        assert in_short(code) == f"process ended {short}"


def test_a_signal_becomes_the_code_that_shells_give_it() -> None:
    for code, shells in [(0, 0), (7, 7), (-9, 137), (-15, 143)]:
        assert for_shell(code) == shells
