"""The two halves in which `make test` runs are made of tests that are there."""

from __future__ import annotations

from tests import halves


def test_the_first_half_names_folders_and_files_of_tests() -> None:
    assert [name for name in halves.FIRST if not (halves.ROOT / "tests" / name).exists()] == []


def test_options_reach_pytest_and_its_exit_code_comes_back() -> None:
    assert halves.main(["tests/test_halves.py", "-k", "first_half"]) == 0
    assert halves.main(["tests/test_halves.py", "-k", "no_such_test"]) == 5
