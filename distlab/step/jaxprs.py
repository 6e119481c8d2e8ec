"""The names and parameters of the operations in a jaxpr.

JAX documents neither, and both change between its versions, so no other file of
distlab reads them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from jax.extend import core

from distlab.devices.mesh import AXIS

_CALLS: Final = {
    "pjit": "jaxpr",
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Operations that run one inner jaxpr once, and the parameter that holds it."""

_SAME_ON_ALL: Final = frozenset(
    {"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"}
)
"""Collectives with the same result on all replicas."""


class Inner(NamedTuple):
    """The jaxpr that an operation runs once.

    Attributes:
      jaxpr: The open jaxpr.
      consts: The values of its constants.
    """

    jaxpr: Any
    consts: tuple[Any, ...]


class Scan(NamedTuple):
    """The parts of `jax.lax.scan`.

    Attributes:
      body: The closed jaxpr of one iteration.
      consts: Number of operands that all iterations share.
      carry: Number of operands that one iteration passes to the next.
      length: Number of iterations.
      reverse: Whether the iterations start at the last row.
    """

    body: core.ClosedJaxpr
    consts: int
    carry: int
    length: int
    reverse: bool


class While(NamedTuple):
    """The parts of `jax.lax.while_loop`.

    Attributes:
      condition: The open jaxpr that decides whether to continue.
      body: The open jaxpr of one iteration.
      condition_consts: Number of operands of the condition only.
      body_consts: Number of operands of the body only.
    """

    condition: Any
    body: Any
    condition_consts: int
    body_consts: int


def name(equation: Any) -> str:
    """Returns an operation's name, such as `"psum"`."""
    return str(equation.primitive.name)


def is_replica_id(equation: Any) -> bool:
    """Returns whether an equation reads the replica's own number."""
    return name(equation) == "axis_index"


def is_collective(equation: Any) -> bool:
    """Returns whether an equation communicates over the mesh axis."""
    if is_replica_id(equation):
        return False
    for key in ("axes", "axis_name"):
        axes = equation.params.get(key, ())
        if axes == AXIS or (isinstance(axes, tuple | list) and AXIS in axes):
            return True
    return False


def is_same_on_all(equation: Any) -> bool:
    """Returns whether the result of a collective is the same on all replicas."""
    return name(equation) in _SAME_ON_ALL


def is_all_reduce(equation: Any) -> bool:
    """Returns whether an equation sums over the mesh axis."""
    return name(equation).startswith("psum")


def permutation(equation: Any) -> list[tuple[int, int]] | None:
    """Returns the pairs `(source, target)` of a ppermute; None for other operations."""
    return list(equation.params["perm"]) if name(equation) == "ppermute" else None


def called(equation: Any) -> Inner | None:
    """Returns the jaxpr that an equation runs exactly once; None when it runs no such jaxpr."""
    parameter = _CALLS.get(name(equation))
    if parameter is None:
        return None
    inner = equation.params[parameter]
    return Inner(getattr(inner, "jaxpr", inner), tuple(getattr(inner, "consts", ())))


def branches(equation: Any) -> list[Any] | None:
    """Returns the open jaxprs of a cond or switch; None for other operations."""
    if name(equation) != "cond":
        return None
    return [branch.jaxpr for branch in equation.params["branches"]]


def scan(equation: Any) -> Scan | None:
    """Returns the parts of a scan; None for other operations."""
    if name(equation) != "scan":
        return None
    params = equation.params
    if "ft_in" in params:  # JAX 0.11 and later: the operands as a tree of three parts
        consts, carry, _ = map(len, params["ft_in"].unpack())
    else:
        consts, carry = params["num_consts"], params["num_carry"]
    return Scan(params["jaxpr"], consts, carry, params["length"], params["reverse"])


def while_loop(equation: Any) -> While | None:
    """Returns the parts of a while loop; None for other operations."""
    if name(equation) != "while":
        return None
    params = equation.params
    return While(
        params["cond_jaxpr"].jaxpr,
        params["body_jaxpr"].jaxpr,
        params["cond_nconsts"],
        params["body_nconsts"],
    )


def inner_jaxprs(equation: Any) -> list[Any]:
    """Returns all jaxprs that an equation may run."""
    return list(core.jaxprs_in_params(equation.params))


def calls_python(jaxpr: Any) -> bool:
    """Returns whether a jaxpr calls Python functions as it runs, at any depth."""
    return any(
        "callback" in name(equation)
        or name(equation) == "debug_print"
        or any(map(calls_python, inner_jaxprs(equation)))
        for equation in jaxpr.eqns
    )


def collective_in(jaxpr: Any) -> str | None:
    """Returns the name of the first collective in a jaxpr, at any depth; None without one."""
    for equation in jaxpr.eqns:
        if is_collective(equation):
            return name(equation)
        for inner in inner_jaxprs(equation):
            found = collective_in(inner)
            if found is not None:
                return found
    return None
