"""kernel: how functions are compiled here.

For sums and products in designs, policies and estimators. Draws and rounding to whole numbers, in
which no operation may change places with another, use numba's own `njit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

__all__ = ["kernel"]

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def kernel(function: Compiled) -> Compiled:
    """Compile without the GIL; sums may vectorise, NaN and infinity keep their meaning."""
    fast = {"reassoc", "contract", "nsz", "arcp"}
    compile_it: Any = njit(cache=True, nogil=True, fastmath=fast, error_model="numpy")
    compiled: Compiled = compile_it(function)
    return compiled
