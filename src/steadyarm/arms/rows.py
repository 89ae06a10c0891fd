"""Arms as rows of a matrix that need not be stored: dense, factorial, bundles.

A solver for many arms reads rows in blocks or by index and never asks for all at once. Factorial
and bundle sets make their rows from the index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, combinations, pairwise, product
from math import comb, log2, prod
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.compiled import kernel
from steadyarm.errors import InvalidInputError
from steadyarm.validation import whole_number

__all__ = [
    "MOST_COLUMNS",
    "BundleRows",
    "DenseRows",
    "FactorialRows",
    "Floats",
    "Indices",
    "Rows",
    "Walsh",
    "products",
    "unrank",
    "walsh_of",
]

# Rows of factorial and bundle sets, compiled: combinations from ranks, products of columns.


@kernel
def unrank(
    indices: NDArray[np.int64], counts: NDArray[np.int64], included: NDArray[np.float64]
) -> None:
    """Set included (m, n) to one at the items of combinations (m,), in lexicographic order.

    counts (n, k) is the number of combinations in which an item takes a slot, given the earlier
    slots.
    """
    for i in range(indices.size):
        rest = indices[i]
        item = 0
        for slot in range(counts.shape[1]):
            while rest >= counts[item, slot]:
                rest -= counts[item, slot]
                item += 1
            included[i, item] = 1.0
            item += 1


@kernel
def products(
    columns: NDArray[np.float64], terms: NDArray[np.int64], rows: NDArray[np.float64]
) -> None:
    """Products of columns (m, c) named by terms (t, order), into rows (m, t)."""
    for i in range(columns.shape[0]):
        for t in range(terms.shape[0]):
            value = columns[i, terms[t, 0]]
            for k in range(1, terms.shape[1]):
                value *= columns[i, terms[t, k]]
            rows[i, t] = value


MOST_ROWS = 2**32  # scores of all rows are kept, 8 bytes each
MOST_COLUMNS = 20_000  # a matrix of columns by columns has to fit in memory

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@runtime_checkable
class Rows(Protocol):
    """The arms of a large set, one a row.

    `block` and `take` return new or read-only contiguous float64 arrays, the same values every
    time they are asked. Columns may be dependent.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        ...

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1: (stop - start, columns)."""
        ...

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices, in their order: (m, columns)."""
        ...


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows of an array or of a memory-mapped file, which is not copied.

    Examples
    --------
    >>> rows = DenseRows(np.eye(3))
    >>> rows.shape, rows.take(np.array([2])).tolist()
    ((3, 3), [[0.0, 0.0, 1.0]])
    """

    array: NDArray[np.floating]

    def __post_init__(self) -> None:
        if not isinstance(self.array, np.ndarray) or self.array.ndim != 2:
            raise InvalidInputError(
                f"the rows are {type(self.array).__name__} of shape {np.shape(self.array)}; "
                "expected a NumPy array or memory map with one row per arm."
            )
        if not np.issubdtype(self.array.dtype, np.floating) or 0 in self.array.shape:
            raise InvalidInputError(
                f"the rows are a {self.array.shape} array of {self.array.dtype}; expected "
                "floating-point numbers, at least one row and one column."
            )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        return int(self.array.shape[0]), int(self.array.shape[1])

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1; a view where the array is contiguous float64."""
        return np.ascontiguousarray(self.array[start:stop], dtype=np.float64)

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        return np.ascontiguousarray(self.array[indices], dtype=np.float64)


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
        rest = _checked(indices, prod(self.levels))
        codes = np.ones((rest.size, self._starts[-1] + 1))
        for f in reversed(range(len(self.levels))):
            rest, level = np.divmod(rest, self.levels[f])
            codes[:, self._starts[f] : self._starts[f + 1]] = _codes(self.levels[f])[level]
        rows = np.empty((indices.size, len(self._terms)))
        products(codes, self._terms, rows)
        return rows


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
        """How many items each column multiplies."""
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
        """(n, size) number of ways to choose the rest after an item takes a slot."""
        n, k = self.items, self.size
        return np.array(
            [[comb(n - item - 1, k - slot - 1) for slot in range(k)] for item in range(n)],
            dtype=np.int64,
        )

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1."""
        return self.take(np.arange(start, stop, dtype=np.int64))

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        included = np.zeros((indices.size, self.items))
        unrank(_checked(indices, self.shape[0]), self._counts, included)
        rows = np.empty((indices.size, self.shape[1]))
        products(included, self._terms, rows)
        return rows


def _codes(levels: int) -> Floats:
    """(L, L-1) codes: first level -1 everywhere, level l is +1 in column l - 1."""
    return np.vstack([-np.ones(levels - 1), np.eye(levels - 1)])


def _checked(indices: ArrayLike, count: int) -> Indices:
    given = np.asarray(indices, dtype=np.int64)
    if given.size and not (given.min() >= 0 and given.max() < count):
        raise InvalidInputError(
            f"rows {given.min()} to {given.max()} were asked for; there are {count:,}, "
            f"0 to {count - 1}."
        )
    return given


def _check_size(rows: int, columns: int, what: str) -> None:
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        raise InvalidInputError(
            f"there are {rows:,} {what} with {columns:,} columns; at most {MOST_ROWS:,} and "
            f"{MOST_COLUMNS:,} are supported. Leave some out or use fewer interactions."
        )


# Passes over the full set of two-level factors by a fast Walsh-Hadamard transform.


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

    @property
    def cost(self) -> float:
        """Additions of a transform, as a share of the multiplications of a plain pass."""
        return log2(self.size) / float(self.masks.size) ** 2

    def forms(self, M: Floats, linear: Floats | None = None) -> Floats:
        """X'Mx + x'linear for every arm x: (K,)."""
        both = (self.masks[:, None] ^ self.masks).ravel()
        signed = (M * self.signs * self.signs[:, None]).ravel()
        answer = np.bincount(both, signed, minlength=self.size).astype(np.float64, copy=False)
        if linear is not None:
            answer[self.masks] += self.signs * linear
        transform(answer)
        return answer

    def products(self, v: Floats) -> Floats:
        """X'v for every arm x: (K,)."""
        answer = np.zeros(self.size)
        answer[self.masks] = self.signs * v
        transform(answer)
        return answer

    def moment(self, weights: Floats) -> Floats:
        """Sum of weights_x x x' over all arms: (r, r)."""
        sums = weights.astype(np.float64)
        transform(sums)
        answer: Floats = sums[self.masks[:, None] ^ self.masks] * self.signs * self.signs[:, None]
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


@kernel
def transform(values: NDArray[np.float64]) -> None:
    """Sum over j of values[j] (-1)^|i & j|, for every i, in place; two bits at a time."""
    step, size = 1, values.size
    while 4 * step <= size:
        for start in range(0, size, 4 * step):
            for i in range(start, start + step):
                a, b = values[i], values[i + step]
                c, d = values[i + 2 * step], values[i + 3 * step]
                values[i], values[i + step] = a + b + (c + d), a - b + (c - d)
                values[i + 2 * step], values[i + 3 * step] = a + b - (c + d), a - b - (c - d)
        step *= 4
    if 2 * step <= size:
        for i in range(step):
            a, b = values[i], values[i + step]
            values[i], values[i + step] = a + b, a - b
