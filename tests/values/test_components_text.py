"""The text of distributed values: their numbers, bounded."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import distlab as dl


def _strategy(replicas: int = 3) -> dl.MirroredStrategy:
    return dl.MirroredStrategy([f"CPU:{n % 8}" for n in range(replicas)])


def _text(make: Any) -> list[str]:
    """Returns the text of each component of a value."""
    value = _strategy().experimental_distribute_values_from_function(
        lambda context: make(context.replica_id_in_sync_group)
    )
    assert str(value) == repr(value) == f"{value}"
    first, *lines, last = str(value).splitlines()
    assert (first, last) == ("PerReplica:{", "}")
    return [line.split(": ", 1)[1].removesuffix(",") for line in lines]


def test_each_component_is_shown_in_tensorflows_form(capsys: pytest.CaptureFixture[str]) -> None:
    s = _strategy()
    print(s.run(lambda x: x + dl.get_replica_context().replica_id_in_sync_group, args=(0.5,)))
    assert capsys.readouterr().out == (
        "PerReplica:{\n"
        "  0: Array(0.5, dtype=float32),\n"
        "  1: Array(1.5, dtype=float32),\n"
        "  2: Array(2.5, dtype=float32)\n"
        "}\n"
    )


def test_values_of_every_kind() -> None:
    for make, last in [
        (lambda n: np.arange(4).reshape(2, 2) * n, "Array([[0, 2], [4, 6]], dtype=int32)"),
        (jnp.arange, "Array([0, 1], dtype=int32)"),
        (lambda n: jnp.ones((0, n)), "Array([], shape=(0, 2), dtype=float32)"),
        (jnp.bfloat16, "Array(2, dtype=bfloat16)"),
        (jnp.bool_, "Array(True, dtype=bool)"),
        (lambda n: f"part {n}", "'part 2'"),
        (lambda n: jax.random.split(jax.random.key(n)), "key<fry>[2]"),
        (
            lambda n: jnp.full((100, 50), float(n)),
            (
                "Array([[2., 2., ..., 2., 2.], [2., 2., ..., 2., 2.], ..., [2., 2., ..., 2., 2.], "
                "[2., 2., ..., 2., 2.]], shape=(100, 50), dtype=float32)"
            ),
        ),
        (lambda _: jnp.ones((1000, 300)), "float32[1000, 300]"),
    ]:
        assert _text(make)[2] == last


def test_many_replicas_are_shown_in_part() -> None:
    lines = str(dl.PerReplica(np.arange(64))).splitlines()
    assert lines[16:] == ["  15: Array(15, dtype=int64),", "  ...: 48 more", "}"]


def test_traced_deleted_and_odd_values_have_a_text() -> None:
    s = _strategy()
    value = s.run(lambda: jnp.ones(2))
    seen: list[str] = []

    @jax.jit
    def look(given: Any) -> Any:
        seen.append(str(given))
        return given

    look(value)
    assert seen == ["PerReplica(3 x float32[2])"]
    value.stacked.delete()
    assert str(value) == "PerReplica(3 x float32[2], deleted)"


def test_mirrored_values_show_their_copies() -> None:
    s = _strategy()
    rate = dl.Mirrored(jax.device_put(jnp.float32(0.5), s.mesh.whole))
    assert str(rate).splitlines()[1:3] == [
        "  0: Array(0.5, dtype=float32),",
        "  1: Array(0.5, dtype=float32),",
    ]
    rate.array.delete()
    assert str(rate) == "Mirrored(float32[], deleted)"
    assert str(dl.Mirrored(3.0)) == "Mirrored(?[])"
