"""Factorial and bundle sets: arms are computed from their index.

Columns of two-level factors are Walsh functions of the index, so that one fast transform gives the
values and quadratic forms of all arms. Other rows are computed in blocks. `values_of` and `forms`
choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, combinations, pairwise, product
from math import comb, prod

import numpy as np
from numpy.typing import ArrayLike

from steadyarm.arms.rows import MOST_COLUMNS, Floats, IdentityRows, Indices, Rows, row_blocks
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import row_dots
from steadyarm.validation import whole_number

MOST_ROWS = 2**32  # scores of all rows are kept, 8 bytes each


@dataclass(frozen=True)
class FactorialRows:
    """The features of `ArmSet.factorial`, made from the index of the arm.

    Parameters
    ----------
    levels : number of levels of each factor; the last factor varies fastest
    interactions : 1 for main effects only, 2 adds pairs, and so on
    constant : whether the first column is the constant one

    Examples
    --------
    >>> FactorialRows([2, 2]).block(0, 4).astype(int).tolist()
    [[1, -1, -1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, 1, 1, 1]]
    >>> FactorialRows([2] * 20).shape
    (1048576, 211)
    """

    levels: Sequence[int]
    interactions: int = 2
    constant: bool = True

    def __post_init__(self) -> None:
        levels = tuple(whole_number(count, "number of levels", least=2) for count in self.levels)
        if not levels:
            raise InvalidInputError("there are no factors; give the levels of at least one.")
        object.__setattr__(self, "levels", levels)
        whole_number(self.interactions, "interactions", least=1)
        _check_size(*self.shape, "combinations of the factors' levels")

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        columns = [1] + [0] * min(self.interactions, len(self.levels))  # of each order so far
        for count in self.levels:
            for order in range(len(columns) - 1, 0, -1):
                columns[order] += columns[order - 1] * (count - 1)
        return prod(self.levels), sum(columns) - (not self.constant)

    @cached_property
    def _starts(self) -> list[int]:
        """Position of the first main effect of each factor, and their number at the end."""
        return [0, *accumulate(count - 1 for count in self.levels)]

    @cached_property
    def _terms(self) -> Indices:
        """(columns, order) positions of the main effects to multiply; the last is the number 1."""
        one, order = self._starts[-1], min(self.interactions, len(self.levels))
        mains = [range(*ends) for ends in pairwise(self._starts)]
        terms = [(one,) * order] if self.constant else []
        for size in range(1, order + 1):
            for subset in combinations(mains, size):
                terms += [(*columns, *[one] * (order - size)) for columns in product(*subset)]
        return np.array(terms, dtype=np.int64)

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        arms = _check(indices, prod(self.levels))
        codes = np.ones((arms.size, self._starts[-1] + 1))
        for f, level in enumerate(np.unravel_index(arms, tuple(self.levels))):
            codes[:, self._starts[f] : self._starts[f + 1]] = _codes(self.levels[f])[level]
        return _products(codes, self._terms)


@dataclass(frozen=True)
class BundleRows:
    """Bundles of `size` of n items, in the order of `ArmSet.bundles`, made from their index.

    The features of `ArmSet.bundles` are dependent. The products of exactly q items, with q the
    least of `interactions`, `size` and n - `size`, are independent and span the rest: with k the
    size, the product over S is the sum of the products over S and one further item, divided by
    k - |S|. These C(n, q) columns are the rows here; `columns` says which features they are.

    Parameters
    ----------
    items : number of items, n
    size : items in a bundle
    interactions : 1 for items alone, 2 adds pairs, and so on

    Examples
    --------
    >>> rows = BundleRows(items=4, size=2, interactions=1)
    >>> rows.block(0, 6).astype(int).tolist()
    [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 1, 1]]
    >>> BundleRows(items=30, size=6).shape
    (593775, 435)
    """

    items: int
    size: int
    interactions: int = 2

    def __post_init__(self) -> None:
        whole_number(self.items, "items", least=2)
        whole_number(self.size, "size", least=1)
        whole_number(self.interactions, "interactions", least=1)
        if self.size >= self.items:
            raise InvalidInputError(
                f"size is {self.size} for {self.items} items; a bundle does not have all of them."
            )
        _check_size(comb(self.items, self.size), comb(self.items, self.order), "bundles")

    @property
    def order(self) -> int:
        """The number of items that each column multiplies."""
        return min(self.interactions, self.size, self.items - self.size)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        return comb(self.items, self.size), comb(self.items, self.order)

    @property
    def columns(self) -> Indices:
        """Positions of the columns among the features of `ArmSet.bundles`."""
        before = sum(comb(self.items, o) for o in range(self.order))
        return np.arange(before, before + self.shape[1], dtype=np.int64)

    @cached_property
    def _terms(self) -> Indices:
        return np.array(list(combinations(range(self.items), self.order)), dtype=np.int64)

    @cached_property
    def _counts(self) -> Indices:
        """(n, size) number of ways to choose the rest once an item has a position."""
        n, k = self.items, self.size
        return np.array(
            [[comb(n - item - 1, k - position - 1) for position in range(k)] for item in range(n)],
            dtype=np.int64,
        )

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        return _products(_unrank(_check(indices, self.shape[0]), self._counts), self._terms)


def _products(columns: Floats, terms: Indices) -> Floats:
    """(m, t) products of the columns (m, c) that each of the terms (t, order) names."""
    rows = columns[:, terms[:, 0]]
    for factor in terms.T[1:]:
        rows *= columns[:, factor]
    return rows


def _codes(levels: int) -> Floats:
    """(L, L-1) codes: first level -1 everywhere, level l is +1 in column l - 1."""
    return np.vstack([-np.ones(levels - 1), np.eye(levels - 1)])


def _check(indices: ArrayLike, count: int) -> Indices:
    given = np.asarray(indices, dtype=np.int64)
    if given.size and not (given.min() >= 0 and given.max() < count):
        raise InvalidInputError(
            f"rows {given.min()} to {given.max()} were requested; there are {count:,}, "
            f"0 to {count - 1}."
        )
    return given


def _check_size(rows: int, columns: int, what: str) -> None:
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        raise InvalidInputError(
            f"there are {rows:,} {what} with {columns:,} columns; at most {MOST_ROWS:,} and "
            f"{MOST_COLUMNS:,} are supported. Leave some out or use fewer interactions."
        )


def _unrank(indices: Indices, counts: Indices) -> Floats:
    """(m, n) ones at the items of combinations (m,), in lexicographic order.

    counts (n, k) is the number of combinations in which an item has a position, given the
    earlier ones.
    """
    included = np.zeros((indices.size, len(counts)))
    rest, position = indices.copy(), np.zeros(indices.size, dtype=np.int64)
    for item, ways in enumerate(np.column_stack([counts, np.zeros_like(counts[:, 0])])):
        left = position < counts.shape[1]
        here = left & (rest < ways[position])
        included[here, item] = 1.0
        rest -= np.where(left & ~here, ways[position], 0)
        position += here
    return included


# Regular fractions: few arms of a factorial set whose equal weights are as good as all of them


MOST_SUMS = 10**6  # sums of columns that are kept while the next column is sought


def fraction(rows: FactorialRows) -> Indices:
    """Sorted indices of arms whose equal weights have the A of equal weights on all arms.

    A(λ) of equal weights only depends on how often levels of 2q factors meet, with q the order of
    the interactions. In an orthogonal array of strength 2q all of these meet equally often, so that
    A is that of the full set. For p levels, p prime, arms u ↦ (⟨u, c₁⟩, …, ⟨u, cₙ⟩) over all u in
    GF(p)ᵇ are such an array if any 2q of the columns c are independent (Rao 1947). The columns are
    chosen greedily, as in a lexicographic code.

    Factors with a number of levels that is not prime keep all their levels; if nothing can be
    left out, these are all arms.

    Examples
    --------
    >>> rows = FactorialRows([2] * 16)
    >>> arms = fraction(rows)
    >>> X = rows.take(arms)
    >>> rows.shape, arms.size, bool(np.allclose(X.T @ X / arms.size, np.eye(137)))
    ((65536, 137), 256, True)
    """
    return _fraction(tuple(rows.levels), rows.interactions)


@lru_cache(maxsize=16)
def _fraction(levels: tuple[int, ...], interactions: int) -> Indices:
    arms = np.zeros(1, dtype=np.int64)
    place = {f: int(np.prod(levels[f + 1 :], dtype=np.int64)) for f in range(len(levels))}
    for count in sorted(set(levels)):
        factors = [f for f, other in enumerate(levels) if other == count]
        groups = [factors] if _is_prime(count) else [[f] for f in factors]
        for group in groups:
            runs = _array(count, len(group), 2 * interactions)
            offsets = runs @ np.array([place[f] for f in group], dtype=np.int64)
            arms = (arms[:, None] + offsets).ravel()
    answer = np.sort(arms)
    answer.setflags(write=False)
    return answer


def _array(p: int, factors: int, strength: int) -> Indices:
    """(runs, factors) levels, in which every choice of `strength` factors is balanced."""
    columns = _columns(p, factors, strength) if strength < factors else None
    if columns is None:
        return np.array(list(product(range(p), repeat=factors)), dtype=np.int64)
    digits = int(np.flatnonzero(columns.any(axis=0)).max()) + 1
    messages = np.array(list(product(range(p), repeat=digits)), dtype=np.int64)
    return np.asarray(messages @ columns[:, :digits].T % p)


def _columns(p: int, factors: int, strength: int) -> Indices | None:
    """(factors, factors) digits of vectors of which any `strength` are independent; or None.

    The next vector is the least that is no combination of fewer than `strength` earlier ones.
    """
    powers = p ** np.arange(factors, dtype=np.int64)
    sums = [np.zeros((1, factors), dtype=np.int64)] + [
        np.zeros((0, factors), dtype=np.int64) for _ in range(strength - 1)
    ]
    taken, columns, candidate = {0}, [], 0
    for _ in range(factors):
        while candidate in taken:
            candidate += 1
        column = candidate // powers % p
        columns.append(column)
        for size in range(strength - 1, 0, -1):
            new = [(sums[size - 1] + c * column) % p for c in range(1, p)]
            sums[size] = np.vstack([sums[size], *new])
            taken.update(np.concatenate([part @ powers for part in new]).tolist())
        if sum(map(len, sums)) > MOST_SUMS:
            return None
    return np.array(columns, dtype=np.int64)


def _is_prime(count: int) -> bool:
    return all(count % divisor for divisor in range(2, int(count**0.5) + 1))


# Two-level factorial sets by a fast Walsh-Hadamard transform


@dataclass(frozen=True, eq=False)
class Walsh:
    """The columns of a two-level factorial set as signed Walsh functions.

    Attributes
    ----------
    rows : the set
    size : number of arms, 2ⁿ
    masks : (r,) which bits of the index each column multiplies
    signs : (r,) what the column is at index 0

    Examples
    --------
    >>> rows = FactorialRows([2, 2, 2])
    >>> walsh, M = walsh_of(rows), np.diag(np.arange(7.0))
    >>> X = rows.block(0, 8)
    >>> bool(np.allclose(walsh.forms(M), np.einsum("ij,jk,ik->i", X, M, X)))
    True
    """

    rows: FactorialRows
    size: int
    masks: Indices
    signs: Floats

    def forms(self, M: Floats, linear: Floats | None = None) -> Floats:
        """(K,) values x'Mx + x'linear of all arms x."""
        both = (self.masks[:, None] ^ self.masks).ravel()
        signed = (M * self.signs * self.signs[:, None]).ravel()
        answer = np.bincount(both, signed, minlength=self.size).astype(np.float64, copy=False)
        if linear is not None:
            answer[self.masks] += self.signs * linear
        _transform(answer)
        return answer

    def products(self, v: Floats) -> Floats:
        """(K,) products x'v of all arms x with a vector."""
        answer = np.zeros(self.size)
        answer[self.masks] = self.signs * v
        _transform(answer)
        return answer


def walsh_of(rows: Rows) -> Walsh | None:
    """The Walsh functions of a two-level factorial set; None for any other rows."""
    if not isinstance(rows, FactorialRows) or set(rows.levels) != {2}:
        return None
    return _walsh(len(rows.levels), rows.interactions, rows.constant)


@lru_cache(maxsize=8)
def _walsh(factors: int, interactions: int, constant: bool) -> Walsh:
    rows = FactorialRows((2,) * factors, interactions, constant)
    bits = np.array([0, *(1 << bit for bit in range(factors))], dtype=np.int64)
    ends = rows.take(bits)  # a bit of the index turns the sign of the columns that it is in
    masks = bits[1:] @ (ends[1:] != ends[0])
    return Walsh(rows, rows.shape[0], masks, ends[0])


def _transform(values: Floats) -> None:
    """Sum over j of values[j] (-1)^|i & j|, for every i, in place."""
    step = 1
    while step < values.size:
        pairs = values.reshape(-1, 2, step)
        total = pairs[:, 0] + pairs[:, 1]
        np.subtract(pairs[:, 0], pairs[:, 1], out=pairs[:, 1])
        pairs[:, 0] = total
        step *= 2


# Values and quadratic forms of all arms at once


def values_of(rows: Rows, parameter: Floats) -> Floats:
    """(K,) products of all rows with a parameter (r,).

    Examples
    --------
    >>> values_of(FactorialRows([2, 2]), np.array([1.0, 0.5, 0.25, 0.0])).tolist()
    [0.25, 0.75, 1.25, 1.75]
    """
    if isinstance(rows, IdentityRows):
        return parameter.copy()
    walsh = walsh_of(rows)
    if walsh is not None:
        return walsh.products(parameter)
    out = np.empty(rows.shape[0])
    for start, stop in row_blocks(*rows.shape):
        out[start:stop] = rows.block(start, stop) @ parameter
    return out


def forms(rows: Rows, M: Floats, linear: Floats) -> Floats:
    """(K,) values x'Mx + x'linear of all rows x, for M (r, r) and linear (r,): one pass.

    Examples
    --------
    >>> from steadyarm.arms.rows import DenseRows
    >>> forms(DenseRows(np.array([[1.0, 2.0], [3.0, 0.0]])), np.eye(2), np.array([1.0, 0.0]))
    array([ 6., 12.])
    """
    walsh = walsh_of(rows)
    if walsh is not None:
        return walsh.forms(M, linear)
    out = np.empty(rows.shape[0])
    for start, stop in row_blocks(*rows.shape):
        X = rows.block(start, stop)
        out[start:stop] = row_dots(X @ M + linear, X)
    return out
