"""Quantiles of the normal, Student's, the chi and the F distribution, alike on every processor.

Whether a test stops, and whether a variant is declared the winner, depends on limits that are so
many standard errors away. SciPy's functions for them call C's `exp`, `log` and `pow`, which choose
their code by the processor; the kernels here are compiled strictly, see `compiled.py`.

Student's distribution and those of chi and F are one here, that of a *length*: that of r
independent normal numbers, each divided by the same estimated standard deviation with v degrees of
freedom. Its square divided by r has the F distribution; v may be infinite (chi), r may be 1 (the
size of Student's t).
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.compiled import exp, kernel, log, log1p, log_upper_tail

Floats = NDArray[np.float64]

ROOT_PI, LOG_2, LOG_FAR = 1.7724538509055159, 0.6931471805599453, 115.12925464970229
FAR = 1e50  # lengths that stand for infinite ones
MANY = 1e5  # degrees of freedom beyond which Student's quantiles follow from normal ones
HUGE, LOG_HUGE = 1e200, 460.51701859880916
POINTS, BETWEEN = 4096, 8  # of tables of lengths, and how many steps from one computed to the next

# Numerators and denominators of Wichura's rational functions (algorithm AS 241, 1988), by rising
# powers: for probabilities near one half, for smaller ones, for those below exp(-25).
# fmt: off
WICHURA = np.array([
    3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946,
    45921.95393154987, 67265.7709270087, 33430.57558358813, 2509.0809287301227,
    1.0, 42.31333070160091, 687.1870074920579, 5394.196021424751,
    21213.794301586597, 39307.89580009271, 28729.085735721943, 5226.495278852854,
    1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045,
    1.2704582524523684, 0.2417807251774506, 0.022723844989269184, 0.0007745450142783414,
    1.0, 2.053191626637759, 1.6763848301838038, 0.6897673349851,
    0.14810397642748008, 0.015198666563616457, 0.0005475938084995345, 1.0507500716444169e-09,
    6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487,
    0.026532189526576124, 0.0012426609473880784, 2.7115555687434876e-05, 2.0103343992922881e-07,
    1.0, 0.599832206555888, 0.1369298809227358, 0.014875361290850615,
    0.0007868691311456133, 1.8463183175100548e-05, 1.421511758316446e-07, 2.0442631033899397e-15,
]).reshape(6, 8)
# fmt: on


@kernel
def normal_quantile(p: float) -> float:
    """What a standard normal number exceeds with probability p, to 16 digits or so.

    Examples
    --------
    >>> round(normal_quantile(0.025), 11), normal_quantile(0.5)
    (1.95996398454, 0.0)
    """
    q = 0.5 - p
    if abs(q) <= 0.425:
        return q * _rational(0.180625 - q * q, 0)
    least = min(p, 1.0 - p)
    if not least > 0.0:
        return np.inf if p < 0.5 else -np.inf
    far = np.sqrt(-log(least))
    found = _rational(far - 1.6, 2) if far <= 5.0 else _rational(far - 5.0, 4)
    return found if q > 0.0 else -found


@kernel
def _rational(x: float, row: int) -> float:
    above, below = 0.0, 0.0
    for k in range(7, -1, -1):
        above = above * x + WICHURA[row, k]
        below = below * x + WICHURA[row + 1, k]
    return above / below


@kernel
def log_length_tail(c: float, r: int, v: float) -> tuple[float, float]:
    """Logarithm of the probability that a length exceeds c, and by what it falls with log c.

    Tails of r + 2 numbers are those of r numbers and one more term: the sum ends with a single
    number, whose tail is that of Student or of the normal distribution, or with none.

    Examples
    --------
    >>> round(exp(log_length_tail(2.0, 2, np.inf)[0]), 6), round(exp(-2.0), 6)
    (0.135335, 0.135335)
    """
    normal = v == np.inf
    x = 0.5 * c * c if normal else c * c / (c * c + v)
    shift = -x if normal else -0.5 * v * log1p(c * c / v)  # logarithm of the first term, for even r
    a, term, total = 0.0, 1.0, 0.0
    if r % 2 == 1:
        a = 0.5
        term = 2.0 * np.sqrt(x) / ROOT_PI * (1.0 if normal else _gamma_ratio(0.5 * v))
        base = LOG_2 + log_upper_tail(c) if normal else _log_two_sided(c, v)
        if r == 1:
            return base, term * exp(shift - base)
        total = exp(base - shift)
    while a < 0.5 * r:
        total += term
        term *= (x if normal else x * (a + 0.5 * v)) / (a + 1.0)
        a += 1.0
        if term > HUGE:
            term, total, shift = term / HUGE, total / HUGE, shift + LOG_HUGE
    return log(total) + shift, r * term / total


@kernel
def _log_two_sided(t: float, v: float) -> float:
    """Logarithm of the probability that the size of Student's t exceeds t > 0.

    It is the incomplete beta function of x = v / (v + t²), by its continued fraction.
    """
    ratio = t * t / v
    x, other = 1.0 / (1.0 + ratio), ratio / (1.0 + ratio)
    front = _gamma_ratio(0.5 * v) / ROOT_PI * np.sqrt(other)
    power = -0.5 * v * log1p(ratio)
    if t * t > 3.0:
        return power + log(front / (0.5 * v) * _fraction(0.5 * v, 0.5, x))
    return log(1.0 - exp(power) * 2.0 * front * _fraction(0.5, 0.5 * v, other))


@kernel
def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / d
    found = d
    for m in range(1, 2000):
        part = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d, c = 1.0 / (1.0 + part * d), 1.0 + part / c
        found *= c * d
        part = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d, c = 1.0 / (1.0 + part * d), 1.0 + part / c
        found *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return found


@kernel
def _gamma_ratio(a: float) -> float:
    """Γ(a + ½) / Γ(a), by its expansion where a is large."""
    found = 1.0
    while a < 24.0:
        found *= a / (a + 0.5)
        a += 1.0
    y = 0.125 / a
    series = 1.0 - y * (
        1.0 - y * (0.5 + y * (2.5 - y * (2.625 + y * (49.875 - y * (54.3125 + y * 2457.8125)))))
    )
    root: float = np.sqrt(a)
    return found * root * series


@kernel
def _length_reach(target: float, r: int, v: float, start: float) -> float:
    """The length whose `log_length_tail` is `target`, by Newton's method in log c.

    The tail is concave there, so that the steps come from above after the first, whatever `start`.
    """
    s = log(start)
    for _ in range(200):
        tail, slope = log_length_tail(exp(s), r, v)
        step = min(max((tail - target) / slope, -1.0), 1.0)
        s += step
        if s > LOG_FAR:
            return FAR
        if abs(step) < 1e-14:
            break
    return exp(s)


@kernel
def student_reach(z: float, v: float) -> float:
    """What Student's t exceeds as often as a standard normal number exceeds z; at most 1e50.

    Examples
    --------
    >>> round(student_reach(1.959963984540054, 10.0), 6), student_reach(2.0, np.inf)
    (2.228139, 2.0)
    """
    if v == np.inf or z == 0.0 or z != z:
        return z
    if z < 0.0:
        return -student_reach(-z, v)
    if z == np.inf:
        return FAR
    y = z * z
    if v > MANY:  # Cornish and Fisher
        one, two = (y + 1.0) / 4.0, ((5.0 * y + 16.0) * y + 3.0) / 96.0
        three = (((3.0 * y + 19.0) * y + 17.0) * y - 15.0) / 384.0
        return z * (1.0 + (one + (two + three / v) / v) / v)
    about = z * (8.0 * v + 3.0) / (8.0 * v + 1.0)  # Wallace
    start = np.sqrt(v * (exp(min(about * about / v, 200.0)) - 1.0))
    return _length_reach(LOG_2 + log_upper_tail(z), 1, v, max(start, 0.5 * z))


@kernel
def _fill_student(z: Floats, v: Floats, out: Floats) -> None:
    for i in range(out.size):
        if i > 0 and z[i] == z[i - 1] and v[i] == v[i - 1]:
            out[i] = out[i - 1]
        else:
            out[i] = student_reach(z[i], v[i])


@kernel(small=2**14)
def _fill_normal(p: Floats, out: Floats) -> None:
    for i in range(out.size):
        out[i] = normal_quantile(p[i])


@kernel(small=2**14)
def _fill_tails(r: int, v: float, step: float, tails: Floats, density: Floats) -> None:
    """P(length > i step) and the density there, i = 1, 2, …; both in units of the step."""
    for i in range(1, tails.size):
        tail, slope = log_length_tail(i * step, r, v)
        tails[i] = exp(tail)
        density[i] = tails[i] * slope / i


def normal_quantiles(p: ArrayLike) -> Floats:
    """`normal_quantile` of every element.

    Examples
    --------
    >>> normal_quantiles([0.5, 0.025]).round(6).tolist()
    [0.0, 1.959964]
    """
    given = np.ascontiguousarray(p, dtype=np.float64)
    out = np.empty(given.shape)
    _fill_normal(given.reshape(-1), out.reshape(-1))
    return out


def student_reaches(z: ArrayLike, freedom: ArrayLike) -> Floats:
    """`student_reach` of every pair.

    Examples
    --------
    >>> student_reaches([2.0, 2.0], [np.inf, 20.0]).round(4).tolist()
    [2.0, 2.133]
    """
    out = np.empty(np.broadcast_shapes(np.shape(z), np.shape(freedom)))
    limits, v = (
        np.empty(out.shape),
        np.empty(out.shape),
    )  # kernels take whole arrays
    limits[...], v[...] = z, freedom
    _fill_student(limits.reshape(-1), v.reshape(-1), out.reshape(-1))
    return out


@lru_cache(maxsize=256)
def length_quantile(r: int, freedom: float, alpha: float) -> float:
    """What a length exceeds with probability alpha.

    Examples
    --------
    >>> round(length_quantile(2, inf, 0.05) ** 2, 4)  # of chi-squared with two degrees of freedom
    5.9915
    """
    start = sqrt(r) + normal_quantile(min(alpha, 0.5))
    return _length_reach(log(alpha), r, freedom, start)


@lru_cache(maxsize=256)
def length_table(r: int, freedom: float, alpha: float) -> tuple[Floats, float]:
    """P(length <= i step) for i = 0, 1, …, 4096, and the step; hardly anything is beyond.

    Every eighth point is computed; between these it is a cubic with the slopes that the density has
    there. Where tails are long, or lengths many, all points are computed.

    Examples
    --------
    >>> table, step = length_table(2, inf, 0.05)
    >>> len(table), round(float(table[-1]), 7)
    (4097, 0.999995)
    """
    between = BETWEEN if freedom >= 10 and r <= 100 else 1
    nodes = POINTS // between
    step = length_quantile(r, freedom, 1e-4 * alpha) / nodes
    tails, density = np.ones(nodes + 1), np.zeros(nodes + 1)
    _fill_tails(r, freedom, step, tails, density)
    if r == 1:
        density[0] = step * _density_at_zero(freedom)
    at = np.arange(between) / between
    f, g = 1.0 - tails[:-1, None], density[:-1, None]
    rise, after = tails[:-1, None] - tails[1:, None], density[1:, None]
    bend = 3.0 * rise - 2.0 * g - after
    twist = g + after - 2.0 * rise
    table = np.append((f + at * (g + at * (bend + at * twist))).reshape(-1), 1.0 - tails[-1])
    return np.maximum.accumulate(np.maximum(table, 0.0)), step / between


def _density_at_zero(freedom: float) -> float:
    """Of the size of Student's t."""
    if freedom == inf:
        return sqrt(2.0) / ROOT_PI
    return 2.0 * _gamma_ratio(0.5 * freedom) / (ROOT_PI * sqrt(freedom))
