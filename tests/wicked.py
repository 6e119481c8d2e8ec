"""Events whose every text is an attack on the page that shows it."""

from __future__ import annotations

from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from distlab.events import Advice, Copy, Error, Event, Loop, Lost, Metric, Unknown
from tests.synthetic import START_NS, STEP_NS, whole_run

ATTACK = (
    "<img src=x onerror='window.attacked = true'>"
    "&lt;img src=x onerror='window.attacked = true'&gt;"
    "</script></pre></style><script>window.attacked = true</script>"
    '"\'><svg onload="window.attacked = true">'
    "$$\\href{javascript:window.attacked=true}{x}$$ {{ 7 * 7 }} @{text}{safe}"
)


def wicked_run(count: int = 40) -> list[Event | Unknown]:
    """A run with events of all kinds that have texts from outside, each of them an attack."""
    return [
        _wicked(one) if isinstance(one, Event) else one for one in [*_more(), *whole_run(count)]
    ]


def _more() -> list[Event]:
    now = START_NS + STEP_NS
    return [
        Copy(
            time_ns=now,
            strategy=0,
            what="x",
            direction="to_devices",
            bytes=8,
            copies=8,
            duration_ns=10,
        ),
        Metric(time_ns=now, step=1, values={"accuracy": 0.5}),
        Loop(time_ns=now, loop=0, name="a loop", state="running", position=1),
        Error(time_ns=now, where="run", type="ValueError", message="a message"),
        Lost(time_ns=now, count=3, reason="a reason"),
        Advice(
            time_ns=now,
            cause="cause",
            subject="subject",
            text="text",
            remedy="remedy",
            evidence={"bytes": 3.0},
            steps=[1, 2],
            page="overview",
            share=0.5,
        ),
    ]


def _wicked(struct: Any) -> Any:
    hints = get_type_hints(type(struct))
    changed = {
        name: _attacked(getattr(struct, name), hints[name])
        for name in struct.__struct_fields__
        if name != "dtype"  # a type that does not exist is a damaged file
    }
    return msgspec.structs.replace(struct, **changed)


def _attacked(value: Any, hint: Any) -> Any:
    """Returns a value with an attack in each text that is not one of a few words."""
    if isinstance(value, msgspec.Struct):
        return _wicked(value)
    if hint is str:
        return f"{value} {ATTACK}"
    if get_origin(hint) is list:
        return [_attacked(one, get_args(hint)[0]) for one in value]
    if get_origin(hint) is dict:
        key, kept = get_args(hint)
        return {_attacked(k, key): _attacked(v, kept) for k, v in value.items()}
    return value
