"""Jaxprs traced under a mesh, for programs over others: those of some replicas alone.

JAX writes the mesh into the type of every value. A sharding constraint changes no number, so it
goes: XLA still divides the work as the variables lie.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.extend import core
from jax.extend.core.primitives import copy_p
from jax.sharding import NamedSharding

from distlab.step.jaxprs import operations


@functools.lru_cache(maxsize=256)  # JAX keeps what it compiled by the jaxpr
def without_mesh(jaxpr: Any) -> Any:
    """Returns a jaxpr whose types have no mesh."""
    bare = getattr(jaxpr, "jaxpr", jaxpr)
    if bare is not jaxpr:
        return core.ClosedJaxpr(without_mesh(bare), jaxpr.consts)
    own: dict[Any, Any] = {}

    def renewed(atoms: Any) -> list[Any]:
        for atom in atoms:
            if isinstance(atom, core.Literal):
                aval: Any = _bare(atom.aval)
                own[id(atom)] = core.Literal(np.asarray(atom.val, aval.dtype), aval)
            elif id(atom) not in own:
                own[id(atom)] = core.Var(_bare(atom.aval))
        return [own[id(atom)] for atom in atoms]

    (context,) = {equation.ctx for equation in jax.make_jaxpr(jax.numpy.negative)(1.0).jaxpr.eqns}
    inputs = {"constvars": renewed(jaxpr.constvars), "invars": renewed(jaxpr.invars)}
    equations = []
    for one in jaxpr.eqns:
        primitive, params = one.primitive, {n: _parameter(v) for n, v in one.params.items()}
        if operations.is_constraint(one):
            primitive, params = copy_p, {}
        variables = {"invars": renewed(one.invars), "outvars": renewed(one.outvars)}
        equations.append(one.replace(primitive=primitive, params=params, ctx=context, **variables))
    return jaxpr.replace(eqns=equations, outvars=renewed(jaxpr.outvars), **inputs)


def _bare(aval: Any) -> Any:
    return aval.update(sharding=None) if hasattr(aval, "sharding") else aval


def _parameter(value: Any) -> Any:
    if isinstance(value, core.Jaxpr | core.ClosedJaxpr):
        return without_mesh(value)
    if isinstance(value, NamedSharding):
        return None
    return type(value)(map(_parameter, value)) if type(value) in {tuple, list} else value
