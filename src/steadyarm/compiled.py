"""How functions are compiled here, and the elementary functions that they may call.

Whatever an assignment, an allocation or an estimate rests on must come out with the same bits on
every processor. `kernel` therefore compiles strictly: no operation changes places with another,
and no product is fused with a sum. Libraries of elementary functions (C's, NumPy's, Intel's)
choose their code by the processor and differ in the last bit, so that kernels use those given
here, which are made of sums, products and quotients alone: of these, and of square roots, IEEE 754
fixes every bit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property, partial, update_wrapper
from math import frexp, ldexp
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

Compiled = TypeVar("Compiled", bound=Callable[..., Any])
Floats = NDArray[np.float64]

PATIENCE = 4.0  # seconds that a process spends on interpreted kernels

LN2_HI, LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
PI_2_1, PI_2_1T = 1.57079632673412561417e00, 6.07710050650619224932e-11
PI_2_2, PI_2_2T = 6.07710050630396597660e-11, 2.02226624879595063154e-21
ROOT_HALF, LOG_ROOT_2PI = 0.7071067811865476, 0.9189385332046728
MANY_TURNS = 2.0**20  # quarter turns of which a multiple of PI_2_1 is exact
EDGE, INVERSE_EDGE = 3.6541528853610088, 0.27366123732975828  # of NumPy's ziggurat
SIGN, LAYER, PLACE = np.uint64(1), np.uint64(0xFF), np.uint64(0x000FFFFFFFFFFFFF)
ONE, EIGHT = np.uint64(1), np.uint64(8)

# Draws in compiled code, and tables of the ziggurat: `_compiler` takes them from numba.
next_double: Any = None
next_uint64: Any = None
fi_double: Any = None
ki_double: Any = None
wi_double: Any = None


@overload
def kernel(function: Compiled) -> Compiled: ...
@overload
def kernel(*, small: int) -> Callable[[Compiled], Compiled]: ...
def kernel(function: Any = None, *, small: int = 2048) -> Any:
    """Compile without the GIL and strictly: every operation in its place, rounded once.

    A division by zero is infinite or not a number, as in NumPy. The code is kept on disk, so that
    a process compiles what no other has compiled before. numba takes longer to import than all
    the rest; it is imported when it is first needed.

    A process begins by interpreting small calls as plain Python, because a live test of a few
    variants makes so few of them that compiling, or even loading, would take longer. It compiles
    what is called with large arrays, and goes over to compiled code for good when it begins to
    simulate or has interpreted for `PATIENCE` seconds. Both ways give the same bits where kernels
    keep two rules: they sum in loops, since NumPy adds in another order, and multiply instead of
    taking powers, since C's `pow` rounds in its own way. They also copy arrays in loops: where an
    array is assigned to a slice, numba compiles how an error would be worded, for seconds.

    small : numbers in the arrays of a call up to which it may be interpreted; 0 for never
    """
    return partial(_Kernel, small=small) if function is None else _Kernel(function, small)


class _Kernel:
    """Stands for a compiled function, for whoever calls it and for numba in other kernels."""

    def __init__(self, function: Callable[..., Any], small: int) -> None:
        update_wrapper(self, function)
        self.py_func, self._small = function, small

    @cached_property
    def compiled(self) -> Any:
        dispatcher = _timed(_compiler)(self.py_func)
        dispatcher._compile_for_args = partial(_timed, dispatcher._compile_for_args)
        return dispatcher

    def __call__(self, *args: Any) -> Any:
        if _thread.interpreting:
            return self.py_func(*args)
        if not _thread.compiling and _patience.seconds > 0.0:
            size = _size(args)
            if size <= self._small:
                return _interpreted(self.py_func, args)
            if size == np.inf:
                _patience.seconds = 0.0
        return self.compiled(*args)

    @property
    def _numba_type_(self) -> Any:  # which numba asks of what a kernel calls
        return self.compiled._numba_type_


class _Thread(threading.local):
    interpreting = False
    compiling = False
    compiled_for = 0.0  # seconds of processor time


def _timed(compile_for_args: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What numba calls for types that a kernel was not compiled for yet."""
    before, started = _thread.compiled_for, time.thread_time()
    try:
        return compile_for_args(*args, **kwargs)
    finally:  # kernels that this one calls are compiled within, and are not counted twice
        _thread.compiled_for = before + time.thread_time() - started


def seconds_compiling() -> float:
    """Processor time that this thread has spent on compiling kernels, or on loading them."""
    return _thread.compiled_for


class _Patience:
    seconds = PATIENCE


_thread, _patience = _Thread(), _Patience()


@contextmanager
def compiling() -> Iterator[None]:
    """Compile or load every kernel that this thread calls, while others go on interpreting.

    Afterwards all threads use compiled code.
    """
    before, _thread.compiling = _thread.compiling, True
    try:
        yield
    finally:
        _thread.compiling = before
        _patience.seconds = 0.0


def _size(args: tuple[Any, ...]) -> float:
    """Numbers in the arrays; infinite for a generator, and for what Python rounds otherwise."""
    total = 0
    for given in args:
        if isinstance(given, np.random.Generator) or getattr(given, "dtype", None) == np.float32:
            return np.inf
        total += getattr(given, "size", 1)
    return total


def _interpreted(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """What the function returns, as numba would: with numbers of Python's own types."""
    started, _thread.interpreting = time.thread_time(), True
    try:
        with np.errstate(all="ignore"):  # NumPy's numbers divide by zero, Python's do not
            found = function(*(np.float64(x) if type(x) is float else x for x in args))
    finally:
        _thread.interpreting = False
        _patience.seconds -= time.thread_time() - started
    if isinstance(found, tuple):
        return tuple(np.asarray(part).item() for part in found)
    return found.item() if isinstance(found, np.generic) else found


@cache
def _compiler() -> Any:
    from numba import njit
    from numba.np.random import _constants, generator_core

    globals().update(
        next_double=generator_core.next_double,
        next_uint64=generator_core.next_uint64,
        fi_double=_constants.fi_double,
        ki_double=_constants.ki_double,
        wi_double=_constants.wi_double,
    )
    return njit(cache=True, nogil=True, fastmath=False, error_model="numpy")


@kernel
def exp(x: float) -> float:
    """Exponential of x, to one unit in the last place (fdlibm's method).

    Examples
    --------
    >>> exp(0.0), round(exp(1.0), 12)
    (1.0, 2.718281828459)
    """
    if not x < 709.782712893384:
        return x if x != x else np.inf
    if x < -745.1332191019412:
        return 0.0
    k = np.floor(x * 1.4426950408889634 + 0.5)
    high, low = x - k * LN2_HI, k * LN2_LO
    r = high - low
    t = r * r
    c = r - t * (
        1.66666666666666019037e-01
        + t
        * (
            -2.77777777770155933842e-03
            + t
            * (
                6.61375632143793436117e-05
                + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08)
            )
        )
    )
    return ldexp(1.0 - ((low - (r * c) / (2.0 - c)) - high), int(k))


@kernel
def log(x: float) -> float:
    """Natural logarithm of x, to one unit in the last place (fdlibm's method).

    Examples
    --------
    >>> log(10.0)
    2.302585092994046
    """
    if not x > 0.0:
        return -np.inf if x == 0.0 else np.nan
    if x == np.inf:
        return x
    part, power = frexp(x)
    if part < ROOT_HALF:
        part, power = 2.0 * part, power - 1
    f = part - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (
        3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)
    )
    odd = z * (
        6.666666666666735130e-01
        + w
        * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    return power * LN2_HI - ((half - (s * (half + (even + odd)) + power * LN2_LO)) - f)


@kernel
def log2(x: float) -> float:
    """Logarithm of x to the base of two, whole for powers of two.

    Examples
    --------
    >>> log2(8.0), log2(0.125)
    (3.0, -3.0)
    """
    if not 0.0 < x < np.inf:
        return log(x)
    part, power = frexp(x)
    if part < ROOT_HALF:
        part, power = 2.0 * part, power - 1
    return power + log(part) * 1.4426950408889634


@kernel
def log1p(x: float) -> float:
    """Natural logarithm of 1 + x, also of small x."""
    u = 1.0 + x
    if not 0.0 < u < np.inf:
        return log(u)
    return log(u) - ((u - 1.0) - x) / u


@kernel
def _quarter(x: float) -> tuple[float, float, int]:
    """What is left of x after whole quarter turns, in two parts, and their number modulo four."""
    n = np.floor(x / 1.5707963267948966 + 0.5)
    many = np.trunc(n / MANY_TURNS) * MANY_TURNS
    few = n - many
    r = ((x - many * PI_2_1) - few * PI_2_1) - many * PI_2_2
    w = few * PI_2_2
    first = r - w
    w = n * PI_2_2T - ((r - first) - w)
    y = first - w
    return y, (first - y) - w, int(n - 4.0 * np.floor(n / 4.0))


@kernel
def _small_sin(x: float, tail: float) -> float:
    z = x * x
    v = z * x
    r = 8.33333333332248946124e-03 + z * (
        -1.98412698298579493134e-04
        + z
        * (
            2.75573137070700676789e-06
            + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)
        )
    )
    return x - ((z * (0.5 * tail - v * r) - tail) - v * -1.66666666666666324348e-01)


@kernel
def _small_cos(x: float, tail: float) -> float:
    z = x * x
    r = z * (
        4.16666666666666019037e-02
        + z
        * (
            -1.38888888888741095749e-03
            + z
            * (
                2.48015872894767294178e-05
                + z
                * (
                    -2.75573143513906633035e-07
                    + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)
                )
            )
        )
    )
    half = 0.5 * z
    w = 1.0 - half
    return w + (((1.0 - w) - half) + (z * r - x * tail))


@kernel
def sin(x: float) -> float:
    """Sine of x (fdlibm's method), for sizes up to 2^40.

    Examples
    --------
    >>> sin(1.0)
    0.8414709848078965
    """
    y, tail, quarter = _quarter(x)
    if quarter == 0:
        return _small_sin(y, tail)
    if quarter == 1:
        return _small_cos(y, tail)
    if quarter == 2:
        return -_small_sin(y, tail)
    return -_small_cos(y, tail)


@kernel
def cos(x: float) -> float:
    """Cosine of x, as `sin`.

    Examples
    --------
    >>> cos(1.0)
    0.5403023058681398
    """
    y, tail, quarter = _quarter(x)
    if quarter == 0:
        return _small_cos(y, tail)
    if quarter == 1:
        return -_small_sin(y, tail)
    if quarter == 2:
        return -_small_cos(y, tail)
    return _small_sin(y, tail)


@kernel
def log_upper_tail(x: float) -> float:
    """Logarithm of the probability that a standard normal number exceeds x.

    Below 3 by the series φ(x) (x + x³/3 + x⁵/15 + …) of the probability between 0 and x, above by
    Laplace's continued fraction.

    Examples
    --------
    >>> round(log_upper_tail(1.6448536269514722), 9) == round(log(0.05), 9)
    True
    """
    if x < 3.0:
        x = max(x, -9.0)  # from there on the probability is one
        term = total = x
        k = 1.0
        while abs(term) > 1e-17 * abs(total):
            k += 2.0
            term *= x * x / k
            total += term
        return log(0.5 - total * exp(-0.5 * x * x - LOG_ROOT_2PI))
    fraction = x
    for k in range(120, 0, -1):
        fraction = x + k / fraction
    return -0.5 * x * x - LOG_ROOT_2PI - log(fraction)


@kernel
def standard_normal(rng: np.random.Generator) -> float:
    """The generator's next standard normal number, as NumPy's ziggurat draws it.

    One in some 4,000 lies in the tail, where NumPy calls C's logarithm; here `log1p` is called,
    so that the last bit of such a number may differ from NumPy's.

    Examples
    --------
    >>> standard_normal(np.random.default_rng(0)) == np.random.default_rng(0).standard_normal()
    True
    """
    bits = rng.bit_generator
    while True:
        drawn = next_uint64(bits)
        layer = drawn & LAYER
        drawn >>= EIGHT
        place = (drawn >> ONE) & PLACE
        x: float = place * wi_double[layer]
        if drawn & SIGN:
            x = -x
        if place < ki_double[layer]:
            return x
        if layer == 0:
            while True:
                beyond = -INVERSE_EDGE * log1p(-next_double(bits))
                other = -log1p(-next_double(bits))
                if other + other > beyond * beyond:
                    far = EDGE + beyond
                    return -far if (place >> EIGHT) & ONE else far
        low, high = fi_double[layer], fi_double[layer - 1]
        if (high - low) * next_double(bits) + low < exp(-0.5 * x * x):
            return x


@kernel
def _fill_normal(rng: np.random.Generator, out: Floats) -> None:
    for i in range(out.size):
        out[i] = standard_normal(rng)


@kernel
def _fill_sin(x: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = sin(x[i])


@kernel
def _fill_exp(x: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = exp(x[i])


@kernel
def _fill_log(x: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = log(x[i])


@kernel
def _fill_cos(x: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = cos(x[i])


def normal(rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats:
    """Standard normal numbers, see `standard_normal`, in an array.

    Examples
    --------
    >>> normal(np.random.default_rng(0), (2, 3)).shape
    (2, 3)
    """
    out = np.empty(size)
    _fill_normal(rng, out.reshape(-1))
    return out


def sines(x: ArrayLike) -> Floats:
    """`sin` of every element.

    Examples
    --------
    >>> sines([0.0, 1.0]).tolist()
    [0.0, 0.8414709848078965]
    """
    return _filled(_fill_sin, x)


def cosines(x: ArrayLike) -> Floats:
    """`cos` of every element.

    Examples
    --------
    >>> cosines([0.0]).tolist()
    [1.0]
    """
    return _filled(_fill_cos, x)


def exponentials(x: ArrayLike) -> Floats:
    """`exp` of every element.

    Examples
    --------
    >>> exponentials([0.0, 1.0]).round(12).tolist()
    [1.0, 2.718281828459]
    """
    return _filled(_fill_exp, x)


def logarithms(x: ArrayLike) -> Floats:
    """`log` of every element.

    Examples
    --------
    >>> logarithms([1.0, 10.0]).tolist()
    [0.0, 2.302585092994046]
    """
    return _filled(_fill_log, x)


def _filled(fill: Callable[[Floats, Floats], None], x: ArrayLike) -> Floats:
    given = np.ascontiguousarray(x, dtype=np.float64)
    out = np.empty(given.shape)
    fill(given.reshape(-1), out.reshape(-1))
    return out
