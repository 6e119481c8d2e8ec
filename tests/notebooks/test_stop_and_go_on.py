"""The notebook about stopping: a training goes on with fewer devices, and no example is lost."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.notebooks.executed import execute, text_of

NAME = "13_stop_and_go_on"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return execute(NAME, tmp_path_factory.mktemp("stopped"))


def test_the_backup_is_that_of_the_last_tenth_step(executed: Any) -> None:
    told = text_of(executed, "stop").splitlines()
    assert told[0] == "killed"
    assert told[1].endswith("after step 40")


def test_three_replicas_go_on_where_eight_were_stopped(executed: Any) -> None:
    told = text_of(executed, "go-on").splitlines()
    assert told[0].startswith("3 replicas: steps 40 to 87, loss ")
    assert told[1] == "each example was used 3 to 3 times"
    assert float(re.findall(r"differ by (\S+)", told[2])[0]) < 1e-4


@pytest.mark.parametrize("cell", ["alone", "change"])
def test_each_example_is_used_once_in_each_epoch(executed: Any, cell: str) -> None:
    assert text_of(executed, cell).splitlines()[-1] == "each example was used 3 to 3 times"
