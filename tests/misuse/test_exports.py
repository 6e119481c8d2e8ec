"""Functions that can't be exported, and results that a file can't hold."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl
from distlab.errors import DistlabError, NeedsPythonError, StructureError
from tests.misuse.table import has_remedy


class Pair(NamedTuple):
    """A result that only this program knows."""

    one: Any
    other: Any


def branches(x: jax.Array) -> jax.Array:
    return x if x.sum() > 0 else -x


FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], type[DistlabError], str]]] = {
    "text": (lambda _: "text", StructureError, "result of <lambda> is 'text'"),
    "text in a dict": (lambda x: {"a": x, "b": "t"}, StructureError, r"result\['b'\] .* is 't'"),
    "bytes": (lambda _: b"text", StructureError, "is b'text'"),
    "texts": (lambda _: np.array(["a"]), StructureError, "'a'"),
    "iterator": (lambda x: iter([x]), StructureError, "list_iterator"),
    "mask": (lambda _: np.ma.MaskedArray([1.0], [True]), StructureError, "masked"),
    "huge number": (lambda _: 10**30, StructureError, "is 10000000"),
    "per replica": (lambda x: dl.PerReplica(jnp.stack((x, x))), StructureError, "PerReplica"),
    "mirrored text": (lambda _: dl.Mirrored("t"), StructureError, r"Mirrored\('t'\)"),
    "if": (branches, NeedsPythonError, "branches needs a Python number .* while export traces"),
    "range": (lambda x: range(int(x.sum())), NeedsPythonError, "<lambda> needs"),
    "index": (lambda x: [1, 2][x.astype(int)[0]], NeedsPythonError, "<lambda> needs"),
    "numpy": (lambda x: np.sort(x) + 0, NeedsPythonError, "jnp in place of np"),
}
"""What is wrong: the function, the error, and what its message names."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_no_program_is_refused(name: str) -> None:
    function, kind, names = FUNCTIONS[name]
    with pytest.raises(kind, match=names) as refused:
        dl.export(function, jnp.zeros(2))
    assert has_remedy(str(refused.value))
    assert jax.jit(lambda x: x + 1)(1) == 2


def test_a_mirrored_result_is_an_array_where_the_function_is_loaded(tmp_path: Path) -> None:
    path = dl.export(lambda x: dl.Mirrored(2 * x), jnp.zeros(2)).save(tmp_path / "double")
    assert dl.load_exported(path)(jnp.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "result", [lambda x: Pair(x, x), lambda x: {1: x}, lambda x: defaultdict(list, a=x)]
)
def test_a_file_refuses_the_programs_own_classes(
    result: Callable[..., Any], tmp_path: Path
) -> None:
    exported = dl.export(result, jnp.zeros(2))
    assert isinstance(exported(jnp.ones(2)), type(result(1)))
    with pytest.raises(StructureError, match=r"dicts of them with text as keys.*Export") as refused:
        exported.save(tmp_path / "pair")
    assert has_remedy(str(refused.value))
    assert not list(tmp_path.iterdir())


def test_a_file_holds_ordered_dicts_and_none(tmp_path: Path) -> None:
    exported = dl.export(lambda x: OrderedDict(b=x, a=None), jnp.zeros(2))
    loaded = dl.load_exported(exported.save(tmp_path / "ordered"))
    assert list(loaded(jnp.ones(2))) == ["b", "a"]
