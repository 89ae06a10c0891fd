"""Arms as rows of a matrix that need not be stored: dense, mapped, some of others.

A solver for many arms reads rows in blocks or by index and never asks for all of them at once.
`generated.py` makes the rows of factorial and bundle sets from their index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError

MANY, LARGE = 2**12, 2**18  # arms, and numbers in their table, above which a set is large
MOST_COLUMNS = 20_000  # a matrix of columns by columns has to fit in memory
LARGEST = 1e100  # of a feature, so that sums of squares are finite
HELD = 2**24  # numbers of a subset up to which it is held in memory: 128 MB

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def is_large(arms: int, columns: int) -> bool:
    """Whether a set is worked on in passes over its arms, with few of them in play at a time."""
    return arms > MANY and arms * columns > LARGE


def row_blocks(count: int, columns: int) -> list[tuple[int, int]]:
    """Where blocks of rows start and stop: few of them, each small enough for the cache."""
    step = max(LARGE // columns, 64)
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def frozen(array: Floats) -> Floats:
    """A contiguous read-only view or copy."""
    array = np.ascontiguousarray(array).view()
    array.setflags(write=False)
    return array


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
class IdentityRows:
    """Rows of the identity: arms that share nothing.

    Examples
    --------
    >>> IdentityRows(3).take(np.array([2])).tolist()
    [[0.0, 0.0, 1.0]]
    """

    size: int

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        return self.size, self.size

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1."""
        return np.eye(stop - start, self.size, start)

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        rows = np.zeros((indices.size, self.size))
        rows[np.arange(indices.size), indices] = 1.0
        return rows


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Rows of another set times a matrix, computed on demand."""

    base: Rows
    by: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        return self.base.shape[0], int(self.by.shape[1])

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1."""
        return np.asarray(self.base.block(start, stop) @ self.by)

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        return np.asarray(self.base.take(indices) @ self.by)


@dataclass(frozen=True, eq=False)
class SubsetRows:
    """Rows at the indices `among`, in their order, computed on demand."""

    rows: Rows
    among: Indices

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        return int(self.among.size), self.rows.shape[1]

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1 of the subset."""
        return self.rows.take(self.among[start:stop])

    def take(self, indices: Indices) -> Floats:
        """Rows of the subset at the given indices into it."""
        return self.rows.take(self.among[indices])


def subset_of(rows: Rows, among: Indices | None) -> Rows:
    """The rows named, held in memory if they are few; all rows if none are named."""
    if among is None:
        return rows
    if among.size * rows.shape[1] <= HELD:
        return DenseRows(rows.take(among))
    return SubsetRows(rows, among)


# What the user gave, checked


def given_rows(X: Any) -> DenseRows:
    """What the user gave, checked and read-only; sparse tables of SciPy become dense."""
    return DenseRows(frozen(_feature_matrix(X.toarray() if hasattr(X, "toarray") else X)))


def _feature_matrix(X: ArrayLike) -> NDArray[np.float64]:
    """A checked copy; a large array of float64, or a memory map, as it is."""
    try:
        features = np.asarray(X)
        if features.dtype != np.float64 or features.size <= LARGE:
            features = np.array(features, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"the features are not a table of numbers ({error}); "
            "give one row per arm, all of the same length."
        ) from None
    _check_shape(features.shape)
    _check_values(features)
    return features


def _check_shape(shape: tuple[int, ...]) -> None:
    """One row per arm, one column per feature, at least two arms and a feature."""
    if len(shape) != 2:
        raise InvalidInputError(
            f"the features have {len(shape)} axes (shape {shape}); "
            "expected 2: one row per arm, one column per feature."
        )
    K, d = shape
    if K < 2:
        raise InvalidInputError(
            f"there {'is 1 arm' if K else 'are no arms'}; a test needs at least 2."
        )
    if d < 1:
        raise InvalidInputError("the arms have no features; give at least one column.")


def _check_values(features: NDArray[np.float64]) -> None:
    K, d = features.shape
    step, something = max(LARGE // d, 1), False
    for start in range(0, K, step):
        block = features[start : start + step]
        possible = np.abs(block) <= LARGEST  # False for nan
        if not possible.all():
            k, j = np.argwhere(~possible)[0]
            raise InvalidInputError(
                f"the feature in row {start + k}, column {j} is {block[k, j]}; all must be "
                f"finite numbers of at most {LARGEST:g}."
            )
        something = something or bool(block.any())
    if not something:
        raise InvalidInputError("all features are zero; nothing tells the arms apart.")
