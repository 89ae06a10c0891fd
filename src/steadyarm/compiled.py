"""Compile hot loops with numba, which is imported when the first of them is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any


class kernel:  # noqa: N801 - used as a decorator
    """Compile a function for numba's `nopython` mode when it is first called.

    Compiled code is kept on disk and runs without the GIL; a division by zero is infinite or nan,
    as in NumPy. numba takes longer to import than everything else, and compiling takes seconds.
    Only simulations, the paper's own solver and sequential boundaries are therefore compiled: the
    first decision of a live test needs none of them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function

    @cached_property
    def compiled(self) -> Any:
        """Numba's dispatcher."""
        from numba import njit

        return njit(cache=True, nogil=True, error_model="numpy")(self.py_func)

    def __call__(self, *args: Any) -> Any:
        """Run the compiled code."""
        return self.compiled(*args)

    @property
    def _numba_type_(self) -> Any:  # which numba reads of a kernel that another kernel calls
        return self.compiled._numba_type_
