"""The table of arguments: what each argument of each verb does with each value of `VALUES`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import jax
import numpy as np
import pytest

import distlab as dl
from distlab.errors import DistlabError
from tests.misuse.values import VALUES
from tests.misuse.world import World

Call: TypeAlias = Callable[[World, Any], object]

_REMEDY: Final = re.compile(
    r"\b(Add|Assign|Call|Choose|Combine|Compare|Convert|Copy|Create|Divide|End|Enter|Export|Give|Keep|Leave|Let|"
    r"List|Make|Name|Number|Open|Pad|Parse|Pass|Read|Record|Reduce|Remove|Reshape|Restore|Return|Run|"
    r"Save|Serialize|Set|Start|Take|Unset|Use|Wait|Write|call|combine|leave|make|pass|put|use|"
    r"write)\b"
)
"""Words that tell what to do."""


@dataclass(frozen=True)
class Row:
    """One argument of one verb.

    Attributes:
      call: Calls the verb with a value as that argument.
      accepts: The values that give the right result.
      tells: The values of which the message tells what is wrong with them, such as their length
        or number of dimensions, and not the values.
      users: The values that are called or iterated and raise an error of their own: functions of
        another arity, and arrays without numbers.
      on_replicas: Whether the verb belongs in a replica function, compiled and eager.
    """

    call: Call
    accepts: frozenset[str]
    tells: frozenset[str]
    users: frozenset[str]
    on_replicas: bool


TABLE: Final[dict[str, Row]] = {}


def row(
    name: str,
    accepts: str = "",
    *,
    tells: str = "",
    users: str = "",
    on_replicas: bool = False,
) -> Callable[[Call], Call]:
    """Adds a row to the table; `accepts`, `tells` and `users` are names of `VALUES`."""

    def add(call: Call) -> Call:
        accepted, told, own = (frozenset(words.split()) for words in (accepts, tells, users))
        assert name not in TABLE, name
        assert accepted | told | own <= set(VALUES), name
        TABLE[name] = Row(call, accepted, told, own, on_replicas)
        return call

    return add


def verdict(row: Row, name: str, value: Any, error: BaseException | None) -> str:
    """Returns what is wrong with the outcome of a cell; nothing if it is right."""
    if name in row.accepts:
        return "" if error is None else f"should be accepted: {error!r:.400}"
    if name in row.users:
        own = error is not None and not isinstance(error, DistlabError)
        return "" if own else f"should raise its own error: {error!r:.400}"
    if error is None:
        return "accepted"
    if not isinstance(error, DistlabError):
        return f"no error of distlab: {error!r:.400}"
    if name not in row.tells and not names(value, str(error)):
        return f"the value is not named: {error}"
    if not has_remedy(str(error)):
        return f"no remedy: {error}"
    return ""


def has_remedy(message: str) -> bool:
    """Returns whether a message tells what to do."""
    return bool(_REMEDY.search(message))


def require_refusal(call: Callable[[], object], kind: type[DistlabError], words: str) -> None:
    """Checks that a call raises an error of this kind that says these words and a remedy.

    Args:
      call: The call.
      kind: The error's class.
      words: A regular expression of what the message names.
    """
    with pytest.raises(kind, match=words) as refused:
        call()
    assert has_remedy(str(refused.value))


def require_harmless_refusal(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[], object],
    kind: type[DistlabError],
    words: str,
) -> None:
    """Checks as `require_refusal` does, and that the call leaves nothing in the present folder.

    Args:
      folder: The folder to make the present one.
      monkeypatch: Makes it so.
      call: The call.
      kind: The error's class.
      words: A regular expression of what the message names.
    """
    monkeypatch.chdir(folder)
    before = list(folder.iterdir())
    require_refusal(call, kind, words)
    assert list(folder.iterdir()) == before


def names(value: Any, message: str) -> bool:
    """Returns whether a message shows a value, its type, or one of its elements."""
    return any(re.search(rf"(?<!\w){re.escape(t)}", message) for t in _texts(value, depth=2))


def _texts(value: Any, depth: int) -> list[str]:
    found = [type(value).__name__, str(getattr(value, "dtype", ""))]
    if isinstance(value, jax.core.Tracer):
        found += ["traced", "transformed", "transformation"]
    if isinstance(value, dl.PerReplica) and value.stacked.is_deleted():
        found.append("deleted")
    with contextlib.suppress(Exception):  # values whose repr raises, and very long numbers
        found.append(repr(value)[:40])
    if depth and isinstance(value, bytes | list | tuple | set | dict):
        for part in [*value, *value.values()] if isinstance(value, dict) else value:
            found += _texts(part, depth - 1)
    if isinstance(value, np.ndarray):
        found += ["ndarray", *_texts(value.tolist(), depth)]
    return [text for text in found if text]
