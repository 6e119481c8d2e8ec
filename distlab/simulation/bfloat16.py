"""The element types of a program as written: CPU devices compute bfloat16 as float32."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, final

from distlab.events import Collective
from distlab.programs.collectives import KINDS, source_of
from distlab.programs.contents import unwrapped
from distlab.programs.flow import ARRAY, elements
from distlab.programs.hlo_text import Module, parse

_TYPE = "bf16"


@final
class WrittenTypes:
    """Finds what of a compiled program's collectives is bfloat16 in the program as written.

    Both texts have the operation's name and line. Args: the program before XLA optimised it.
    """

    def __init__(self, lowered: Any) -> None:
        self._asked: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._other: dict[str, list[tuple[int, str]]] = defaultdict(list)
        text = unwrapped(lowered).compiler_ir("hlo").get_hlo_module().to_string()
        self._any = f"{_TYPE}[" in text
        if self._any:
            self._read(parse(text))

    def _read(self, module: Module) -> None:
        for body in module.computations.values():
            for one in body.values():
                if not one.metadata.get("op_name"):
                    continue
                asked = one.opcode in KINDS
                shapes = [body[name].shape for name in one.operands if name in body]
                found = self._asked if asked else self._other
                for shape in shapes if asked else [one.shape]:
                    for dtype, sizes in ARRAY.findall(shape):
                        found[source_of(module, one)].append((elements(sizes), dtype))

    def operand_bytes(self, one: Collective) -> int | None:
        """Returns the bytes of a collective's operands as written; None where it isn't known."""
        if "f32" not in one.dtype or not self._any:
            return one.operand_bytes
        saved = 0
        for value in one.values:
            array, _, source = value.partition(" from ")
            dtype, sizes = ARRAY.findall(array)[0]
            known = self._asked if one.asked == "program" else self._other
            size = elements(sizes)
            found = _with_end(known, source or one.source)
            types = {of for length, of in found if length == size} or {of for _, of in found}
            if dtype == "f32" and (not types or (len(types) > 1 and _TYPE in types)):
                return None
            saved += 2 * size if dtype == "f32" and types == {_TYPE} else 0
        return one.operand_bytes - saved if len(one.values) == one.operands else None


def _with_end(known: dict[str, list[tuple[int, str]]], source: str) -> list[tuple[int, str]]:
    """Returns what is known of an operation: functions of its own leave out their callers."""
    while source not in known and "/" in source.partition(" at ")[0]:
        source = source.partition("/")[2]
    return known.get(source, [])
