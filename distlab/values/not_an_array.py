"""What a value with a component for each replica answers to who takes it for an array."""

from __future__ import annotations

from typing import Any, NoReturn

from distlab.errors import StructureError


class NotAnArray:
    """Refuses what only one array can do, and says what to do instead."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StructureError(
            f"{self!r} has a value for each replica, so it can't be used as one array or number "
            "here. Use it inside a function given to strategy.run; or make one value of it with "
            "strategy.reduce or gather, or take the replicas' own ones: "
            "strategy.experimental_local_results."
        )

    __array__ = __jax_array__ = __float__ = __int__ = __complex__ = __index__ = _refuse
    __len__ = __iter__ = __getitem__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __round__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _refuse
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __bool__(self) -> bool:
        """Is true, as of any object, so that `value or default` works as with tf.distribute's."""
        return True

    def __format__(self, spec: str) -> str:
        return self._refuse() if spec else str(self)
