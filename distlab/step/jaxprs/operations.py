"""The names and parameters of the operations in a jaxpr.

JAX documents neither, and both change between its versions, so no other file of
distlab reads them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax.extend import core
from jax.extend.core.primitives import copy_p
from jax.interpreters.partial_eval import dce_jaxpr

from distlab.devices.jax_internals import ConcreteArray
from distlab.devices.mesh import AXIS, SAME_ON_ALL
from distlab.user_code import is_users, line_text

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

_RANDOM: Final = frozenset(
    {"random_bits", "rng_bit_generator", "rng_uniform", "threefry2x32", "random_gamma"}
)

_NOT_BY_ELEMENT: Final = re.compile(
    r"dot|conv_general|gather|scatter|slice|sort|top_k|cum|reduce|rev$|fft|cholesky|triangular|"
    r"lu|eig|svd|qr|iota|random|pad|concatenate|psum|pmin|pmax|all_|ppermute"
)


_SMALL_CONST: Final = 1 << 10

_SAME_ON_ALL: Final = frozenset(
    {"psum", "psum_invariant", "pmax", "pmin", "all_gather", "all_gather_invariant"}
)
"""Collectives with the same result on all replicas."""


class Inner(NamedTuple):
    """An open jaxpr that an operation runs, and the values of its constants."""

    jaxpr: Any
    consts: tuple[Any, ...]


class Scan(NamedTuple):
    """The parts of `jax.lax.scan`; `consts` and `carry` are numbers of operands."""

    body: core.ClosedJaxpr
    consts: int
    carry: int
    length: int
    reverse: bool


class While(NamedTuple):
    """The parts of `jax.lax.while_loop`, with the numbers of operands of one of them only."""

    condition: Inner
    body: Inner
    condition_consts: int
    body_consts: int


def name(equation: Any) -> str:
    """Returns an operation's name, such as `"psum"`."""
    return str(equation.primitive.name)


def is_replica_id(equation: Any) -> bool:
    """Returns whether an equation reads the replica's own number."""
    return name(equation) == "axis_index"


def is_constraint(equation: Any) -> bool:
    """Returns whether an equation asks for the sharding of a value, and changes no number."""
    return name(equation) == "sharding_constraint"


def is_collective(equation: Any) -> bool:
    """Returns whether an equation communicates over the mesh axis."""
    if is_replica_id(equation):
        return False
    if is_marked(equation):
        return True
    for key in ("axes", "axis_name"):
        axes = equation.params.get(key, ())
        if axes == AXIS or (isinstance(axes, tuple | list) and AXIS in axes):
            return True
    return False


def is_same_on_all(equation: Any) -> bool:
    """Returns whether the result of a collective is the same on all replicas."""
    among_all = equation.params.get("axis_index_groups") is None
    return is_marked(equation) or (name(equation) in _SAME_ON_ALL and among_all)


def is_marked(equation: Any) -> bool:
    """Returns whether an equation calls a function that is marked as the same on all replicas."""
    of_function = equation.params.get("name")
    return isinstance(of_function, str) and SAME_ON_ALL in of_function


def marked(values: Sequence[Any]) -> list[Any]:
    """Returns values marked as the same on all replicas."""

    def same(values: list[Any]) -> list[Any]:
        return values

    same.__name__ = SAME_ON_ALL
    return list(jax.jit(same)(list(values)))


def is_all_reduce(equation: Any) -> bool:
    """Returns whether an equation sums over the mesh axis."""
    return name(equation).startswith("psum")


def permutation(equation: Any) -> list[tuple[int, int]] | None:
    """Returns the pairs `(source, target)` of a ppermute; None for other operations."""
    return list(equation.params["perm"]) if name(equation) == "ppermute" else None


def called(equation: Any) -> Inner | None:
    """Returns the jaxpr that an equation runs exactly once; None when it runs no such jaxpr."""
    parameter = _CALLS.get(name(equation))
    return None if parameter is None else _inner(equation.params[parameter])


def is_recomputed(equation: Any) -> bool:
    """Returns whether an equation calls a function that is computed again for its gradient."""
    return name(equation) in {"checkpoint", "remat", "remat2"}


def has_derivative_rule(equation: Any) -> bool:
    """Returns whether an equation calls a function with a derivative of its own."""
    return name(equation).startswith("custom_")


def branches(equation: Any) -> list[Inner] | None:
    """Returns the jaxprs of a cond or switch; None for other operations."""
    if name(equation) != "cond":
        return None
    return [_inner(branch) for branch in equation.params["branches"]]


def scan(equation: Any) -> Scan | None:
    """Returns the parts of a scan; None for other operations."""
    if name(equation) != "scan":
        return None
    params = equation.params
    if "ft_in" in params:  # JAX 0.11 and later: the operands as a tree of three parts
        consts, carry, _ = map(len, params["ft_in"].unpack())
    else:
        consts, carry = params["num_consts"], params["num_carry"]
    body, length, reverse = params["jaxpr"], params["length"], params["reverse"]
    return Scan(body, consts, carry, length, reverse)


def while_loop(equation: Any) -> While | None:
    """Returns the parts of a while loop; None for other operations."""
    if name(equation) != "while":
        return None
    params = equation.params
    return While(
        _inner(params["cond_jaxpr"]),
        _inner(params["body_jaxpr"]),
        params["cond_nconsts"],
        params["body_nconsts"],
    )


def handed_on(value: Any) -> Any:
    """Returns the value that calls and branches passed through unchanged."""
    while True:
        equation = getattr(value, "parent", None)  # a tracer of make_jaxpr knows its equation
        if equation is None or value.val not in equation.outvars:
            return value
        operand = _operand_handed_on(equation, equation.outvars.index(value.val))
        if operand is None:
            return value
        value = equation.in_tracers[operand]


def _operand_handed_on(equation: Any, output: int) -> int | None:
    """Returns the number of the operand that an equation returns unchanged; None for others."""
    inner = called(equation)
    if inner is not None:
        return _input_handed_on(inner.jaxpr, output)
    loop = scan(equation)
    if loop is not None:
        operand = _input_handed_on(loop.body.jaxpr, output)
        if output < loop.carry:
            return operand if operand == loop.consts + output else None
        rows = operand is not None and operand >= loop.consts + loop.carry
        return operand if rows else None  # each row goes out as it came in
    found = {_input_handed_on(branch.jaxpr, output) for branch in branches(equation) or ()}
    number = found.pop() if len(found) == 1 else None
    return None if number is None else number + 1  # the first operand chooses the branch


def _input_handed_on(jaxpr: Any, output: int) -> int | None:
    """Returns the number of the input that a jaxpr returns unchanged; None for others."""
    atom = jaxpr.outvars[output]
    made_by = {var: equation for equation in jaxpr.eqns for var in equation.outvars}
    while not isinstance(atom, core.Literal) and atom in made_by:
        operand = _operand_handed_on(made_by[atom], made_by[atom].outvars.index(atom))
        if operand is None:
            return None
        atom = made_by[atom].invars[operand]
    inputs = list(jaxpr.invars)
    return inputs.index(atom) if atom in inputs else None


def is_loop_or_branch(equation: Any) -> bool:
    """Returns whether an equation runs jaxprs other than once each."""
    return name(equation) in {"scan", "while", "cond"}


def inner_jaxprs(equation: Any) -> list[Any]:
    """Returns all jaxprs that an equation may run."""
    return list(core.jaxprs_in_params(equation.params))


def part_of(equation: Any, output: int) -> Any:
    """Returns an equation that computes one output, and few others."""
    variables = [atom for atom in equation.invars if not isinstance(atom, core.Literal)]
    wanted = [equation.outvars[output]]
    inputs = list(dict.fromkeys(variables))
    (program, *_) = core.jaxprs_in_params(equation.params)
    known = program.debug_info._replace(arg_names=("",) * len(inputs), result_paths=("",))
    alone: Any = core.Jaxpr([], inputs, wanted, [equation], equation.effects, known)
    part, _ = part_of_jaxpr(alone, [True])
    return part.eqns[-1]


def part_of_jaxpr(jaxpr: Any, outputs: Sequence[bool]) -> tuple[Any, list[bool]]:
    """Returns an open jaxpr of some outputs alone, and for each input if it is needed."""
    part, used = dce_jaxpr(jaxpr, list(outputs))
    return part, list(used)


def calls_python(jaxpr: Any) -> bool:
    """Returns whether a jaxpr calls Python functions as it runs, at any depth."""
    return _first(jaxpr, _is_python) is not None


def reaches_out(jaxpr: Any) -> bool:
    """Returns whether a jaxpr calls Python or foreign code, or has effects, at any depth."""

    def does(equation: Any) -> bool:
        return _is_python(equation) or "ffi" in name(equation) or has_effect(equation)

    return _first(jaxpr, does) is not None


def collective_in(jaxpr: Any) -> str | None:
    """Returns the name of the first collective in a jaxpr, at any depth; None without one."""
    found = _first(jaxpr, is_collective)
    if found is None:
        return None
    return "all_reduce" if is_marked(found) else name(found)


def collectives_in(jaxpr: Any) -> Iterator[str]:
    """Yields the collectives of a jaxpr in order, at any depth, as text with their shapes."""
    for equation in jaxpr.eqns:
        if is_collective(equation):
            shapes = [getattr(value, "aval", None) for value in equation.invars]
            yield f"{name(equation)} {[str(shape) for shape in shapes]}"
        else:
            for inner in inner_jaxprs(equation):
                yield from collectives_in(inner)


def calls_collective(equation: Any) -> bool:
    """Returns whether an equation runs a jaxpr with a collective in it."""
    return any(_first(inner, is_collective) is not None for inner in inner_jaxprs(equation))


def calls_replica_id(equation: Any) -> bool:
    """Returns whether an equation runs a jaxpr that reads the replica's own number."""
    return any(reads_replica_id(inner) for inner in inner_jaxprs(equation))


def reads_replica_id(jaxpr: Any) -> bool:
    """Returns whether a jaxpr reads the replica's own number, at any depth."""
    return _first(jaxpr, is_replica_id) is not None


def numbered(params: dict[str, Any], number: int) -> dict[str, Any]:
    """Returns an operation's parameters for one replica, whose number is a constant in them."""
    return {name: _numbered(value, number) for name, value in params.items()}


def has_effect(equation: Any) -> bool:
    """Returns whether an equation does more than compute its outputs, as printing does."""
    return any(type(effect).__name__ != "NamedAxisEffect" for effect in equation.effects)


def is_random(equation: Any) -> bool:
    """Returns whether an operation draws random numbers."""
    return name(equation) in _RANDOM


def is_by_element(equation: Any) -> bool:
    """Returns whether an element of the result depends on the same one of each array operand."""
    if inner_jaxprs(equation) or _NOT_BY_ELEMENT.match(name(equation)):
        return False
    shape = equation.outvars[0].aval.shape
    shapes = (getattr(atom.aval, "shape", None) for atom in equation.invars)
    return all(one == shape or (one is not None and set(one) <= {1}) for one in shapes)


def keeps_rows(equation: Any) -> bool:
    """Returns whether an operation changes the shape of an array and keeps its first axis."""
    if name(equation) not in {"broadcast_in_dim", "reshape", "squeeze", "expand_dims"}:
        return False
    before, after = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
    if name(equation) == "broadcast_in_dim" and before:
        return equation.params["broadcast_dimensions"][0] == 0 and before[:1] == after[:1]
    return bool(before) and before[:1] == after[:1]


def is_product(equation: Any) -> bool:
    """Returns whether an operation is a matrix product or a convolution."""
    return name(equation) in {"dot_general", "conv_general_dilated"}


def is_addition(equation: Any) -> bool:
    """Returns whether an operation adds or subtracts."""
    return name(equation) in {"add", "sub", "add_any"}


def is_root(equation: Any) -> bool:
    """Returns whether an operation makes a value independent of its operand's scale, or nearly."""
    return name(equation) in {"sqrt", "rsqrt", "sign", "pow"}


def number(atom: Any) -> float | None:
    """Returns the value of a literal that is one number; None for others."""
    if not isinstance(atom, core.Literal) or np.ndim(atom.val) or np.iscomplexobj(atom.val):
        return None
    return float(atom.val)


def scaled(equation: Any, numbers: Sequence[float | None]) -> float | None:
    """Returns by what number an operation multiplies its first operand, or the second."""
    kind = name(equation)
    if kind in {"convert_element_type", "copy", "reshape", "squeeze", "broadcast_in_dim"}:
        return 1.0
    if kind == "neg":
        return -1.0
    if kind == "mul":
        return numbers[1] if numbers[0] is None else numbers[0]
    if kind == "div" and numbers[1]:
        return 1.0 / numbers[1]
    return None


def is_lookup(equation: Any) -> bool:
    """Returns whether an operation takes rows from a table."""
    return name(equation) == "gather"


def added_rows(equation: Any) -> int | None:
    """Returns how many rows of a table an operation adds to, as gradients of `table[ids]` do."""
    if name(equation) not in {"scatter-add", "scatter_add"}:
        return None
    return int(np.prod(equation.invars[1].aval.shape[:-1], dtype=np.int64))


def user_line(equation: Any) -> str:
    """Returns the line of the user's program that an operation stems from; empty if unknown."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        if is_users(frame.file_name):
            return line_text(frame.file_name, frame.line_num)
    return ""


def has_gradient(jaxpr: Any) -> bool:
    """Returns whether a jaxpr computes a gradient, at any depth."""
    return _first(jaxpr, _is_of_gradient) is not None


def _is_of_gradient(equation: Any) -> bool:
    return "transpose(" in str(equation.source_info.name_stack)


def is_of_mean(equation: Any) -> bool:
    """Returns whether an operation stems from a call of `jnp.mean` or of an array's `mean`."""
    traceback = equation.source_info.traceback
    return any(
        frame.function_name == "mean" and "jax" in Path(frame.file_name).parts
        for frame in (traceback.frames if traceback is not None else ())
    )


def literal_key(literal: Any) -> Hashable:
    """Returns what two literals of equal value and type have in common."""
    return literal.aval, np.asarray(literal.val).tobytes()


def const_key(const: Any, *, by_value: bool) -> Hashable:
    """Returns what two constants that are the same have in common."""
    is_array = isinstance(const, np.ndarray) or type(const) is ConcreteArray
    if by_value and is_array and const.nbytes <= _SMALL_CONST:
        numbers = np.asarray(const)
        return "const", numbers.dtype, numbers.shape, numbers.tobytes()
    return "const", id(const)


def key(equation: Any, operands: Sequence[Hashable], *, derivatives: bool = True) -> Hashable:
    """Returns what two equations that compute the same have in common."""
    if has_effect(equation):
        return object()
    params = sorted(equation.params.items())
    inner = _CALLS.get(name(equation)) if has_derivative_rule(equation) else None
    if inner is not None and not derivatives:
        params = [(inner, equation.params[inner])]
    keys = tuple((name, _parameter_key(value, derivatives=derivatives)) for name, value in params)
    return equation.primitive, keys, equation.ctx, tuple(operands)


def output_key(equation: Any, operands: Sequence[Hashable], output: int) -> Hashable:
    """Returns what two outputs have in common that equations compute alike, as `key` does.

    Of an equation that runs jaxprs, such as a call, it is that of what the output needs.
    """
    if has_effect(equation) or not inner_jaxprs(equation):
        return output, key(equation, operands, derivatives=False)
    inner = called(equation)
    if inner is not None:
        wanted = [n == output for n in range(len(equation.outvars))]
        program, inputs = part_of_jaxpr(inner.jaxpr, wanted)
        program_key = _jaxpr_key(Inner(program, inner.consts), derivatives=False)
        return "call", program_key, tuple(_chosen(operands, inputs))
    part = part_of(equation, output)
    key_of = {id(atom): operand for atom, operand in zip(equation.invars, operands, strict=True)}
    needed = [key_of[id(atom)] for atom in part.invars]
    position = next(n for n, var in enumerate(part.outvars) if var is equation.outvars[output])
    return position, key(part, needed, derivatives=False)


def _chosen(operands: Sequence[Hashable], flags: Sequence[bool]) -> list[Hashable]:
    return [operand for operand, flag in zip(operands, flags, strict=True) if flag]


def _inner(jaxpr: Any) -> Inner:
    return Inner(getattr(jaxpr, "jaxpr", jaxpr), tuple(getattr(jaxpr, "consts", ())))


def _is_python(equation: Any) -> bool:
    return "callback" in name(equation) or name(equation) == "debug_print"


def _first(jaxpr: Any, matches: Callable[[Any], bool]) -> Any:
    """Returns the first equation that matches, at any depth; None without one."""
    for equation in jaxpr.eqns:
        if matches(equation):
            return equation
        for inner in inner_jaxprs(equation):
            found = _first(inner, matches)
            if found is not None:
                return found
    return None


def _numbered(value: Any, number: int) -> Any:
    if isinstance(value, core.Jaxpr | core.ClosedJaxpr):
        return _numbered_jaxpr(value, number)
    if type(value) in {tuple, list}:
        return type(value)(_numbered(part, number) for part in value)
    return value


@functools.lru_cache(maxsize=256)  # JAX keeps what it compiled by the jaxpr
def _numbered_jaxpr(jaxpr: Any, number: int) -> Any:
    bare = getattr(jaxpr, "jaxpr", jaxpr)
    if bare is not jaxpr:  # since JAX 0.12 one class holds the equations and the constants
        return core.ClosedJaxpr(_numbered_jaxpr(bare, number), jaxpr.consts)
    equations = [_numbered_equation(equation, number) for equation in jaxpr.eqns]
    return jaxpr.replace(eqns=equations, effects=_without_axis(jaxpr.effects))


def _numbered_equation(equation: Any, number: int) -> Any:
    effects = _without_axis(equation.effects)
    if is_replica_id(equation):
        own = core.Literal(np.int32(number), equation.outvars[0].aval)
        return equation.replace(primitive=copy_p, invars=[own], params={}, effects=effects)
    return equation.replace(params=numbered(equation.params, number), effects=effects)


def _without_axis(effects: Any) -> Any:
    return {effect for effect in effects if type(effect).__name__ != "NamedAxisEffect"}


def _parameter_key(value: Any, *, derivatives: bool) -> Hashable:
    if isinstance(value, core.Jaxpr | core.ClosedJaxpr):
        return _jaxpr_key(_inner(value), derivatives=derivatives)
    if isinstance(value, tuple | list):
        parts = (_parameter_key(part, derivatives=derivatives) for part in value)
        return type(value), tuple(parts)
    try:
        hash(value)
    except TypeError:
        return object()
    return type(value), value


def _jaxpr_key(inner: Inner, *, derivatives: bool) -> Hashable:
    """Returns a key that is equal for jaxprs with equal equations and the same constants."""
    jaxpr, consts = inner
    keys: dict[Any, Hashable] = {
        var: ("input", number, var.aval) for number, var in enumerate(jaxpr.invars)
    }
    keys |= {
        var: const_key(const, by_value=not derivatives)
        for var, const in zip(jaxpr.constvars, consts, strict=False)
    }

    def of(atom: Any) -> Hashable:
        return literal_key(atom) if isinstance(atom, core.Literal) else keys[atom]

    equations = []
    for number, equation in enumerate(jaxpr.eqns):
        operands = [of(atom) for atom in equation.invars]
        equations.append(key(equation, operands, derivatives=derivatives))
        keys |= {var: ("output", number, i) for i, var in enumerate(equation.outvars)}
    return tuple(equations), tuple(of(atom) for atom in jaxpr.outvars), len(jaxpr.invars)
