"""The reader's choices on a page. The page writes them, and none of it is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Meta

from distlab.events import AnyEvent

KINDS: Final = tuple(sorted(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)))
"""The kinds of events that can be chosen."""

PRESSED: Final = (
    *("captures", "orders", "loop", "order"),
    *("simulations", "simulated", "sizes"),
)
"""The choices that are buttons pressed: they change nothing of what the page shows."""

_Word: TypeAlias = Annotated[str, Meta(max_length=200)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, lt=1 << 53)]
_Seconds: TypeAlias = Annotated[float, Meta(ge=0, lt=1e12)]


@dataclass(frozen=True)
class View:
    """The part of a run that a page shows, and the buttons pressed on it."""

    page: _Word = "overview"
    batch: _Count | None = None  # None: the newest
    dataset: _Count | None = None  # None: all
    replica: _Count = 0  # the first one drawn, where there are too many for all
    device: _Count | None = None  # likewise; None: all in groups
    capture: _Count | None = None  # None: the one of most steps
    at: _Seconds | None = None  # seconds since the run began; None: the newest moment
    since: _Seconds | None = None  # seconds before which events are left out; None: none are
    speed: _Seconds | None = None  # seconds by which the moment moves on in a second
    reduction: _Count = 0  # the row whose traffic is drawn
    kind: _Word = ""  # of the events; empty: all kinds
    text: _Word = ""  # that the events contain
    before: _Count | None = None  # lists events with lower numbers; None: the newest
    event: _Count | None = None  # the one shown in full
    captures: _Count = 0  # requested so far
    orders: _Count = 0  # loop buttons pressed so far; the last one:
    loop: _Count = 0
    order: _Word = ""
    simulations: _Count = 0  # requested so far; the last one:
    simulated: _Word = ""  # the step
    sizes: _Word = ""  # numbers of replicas

    @classmethod
    def read(cls, text: object) -> View:
        """Returns the choices that a page wrote; invalid ones keep their defaults."""
        try:
            given = msgspec.json.decode(text) if isinstance(text, str) else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return cls()
        if not isinstance(given, dict):
            return cls()
        return cls(**{name: given[name] for name in _TYPES if name in given and _fits(name, given)})


_TYPES: Final = get_type_hints(View, include_extras=True)


def _fits(name: str, given: dict[str, object]) -> bool:
    try:
        msgspec.convert(given[name], _TYPES[name])
    except msgspec.ValidationError:
        return False
    return True
