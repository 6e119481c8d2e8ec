"""The notebook about stopping: a training goes on with fewer devices, and no example is lost."""

from __future__ import annotations

import re
from typing import Any

from tests.notebooks.executed import text_of

NAME = "13_stop_and_go_on"


def test_three_replicas_go_on_where_eight_were_killed(executed: Any) -> None:
    told = text_of(executed, "stop").splitlines()
    assert told[0] == "killed"
    assert told[1].endswith("after step 40")
    told = text_of(executed, "go-on").splitlines()
    assert told[0].startswith("3 replicas: steps 40 to 87, loss ")
    assert float(re.findall(r"differ by (\S+)", told[2])[0]) < 1e-4
    for line in (
        told[1],
        *(text_of(executed, cell).splitlines()[-1] for cell in ("alone", "change")),
    ):
        assert line == "each example was used 3 to 3 times"
