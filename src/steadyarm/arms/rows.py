"""Arms as rows of a matrix that need not be stored: dense, sparse, mapped, some of others.

A solver for many arms reads rows in blocks or by index and never asks for all of them at once.
`generated.py` makes the rows of factorial and bundle sets from their index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

MANY, LARGE = 2**12, 2**18  # arms, and numbers in their table, above which a set is large
MOST_COLUMNS = 20_000  # a matrix of columns by columns has to fit in memory
LARGEST = 1e100  # of a feature, so that sums of squares are finite
HELD = 2**24  # numbers of a subset up to which it is held in memory: 128 MB
STEP = 256  # rows that are packed together

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Bits = NDArray[np.uint64]


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


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix, times a dense one if there is one; dense in blocks alone.

    Parameters
    ----------
    matrix : (K, d) in the canonical form that `given_rows` makes
    by : (d, r) array, by which rows are multiplied; None for the rows themselves

    Examples
    --------
    >>> from scipy.sparse import eye_array
    >>> rows = SparseRows(eye_array(3, format="csr"))
    >>> rows.shape, rows.take(np.array([2])).tolist()
    ((3, 3), [[0.0, 0.0, 1.0]])
    """

    matrix: csr_array[np.float64]
    by: Floats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of arms and of columns."""
        K, d = self.matrix.shape
        return int(K), int(d if self.by is None else self.by.shape[1])

    def block(self, start: int, stop: int) -> Floats:
        """Rows start to stop - 1."""
        return self._dense(self.matrix[start:stop])

    def take(self, indices: Indices) -> Floats:
        """Rows at the given indices."""
        return self._dense(self.matrix[np.asarray(indices, dtype=np.int64)])

    def values(self, theta: Floats) -> Floats:
        """(K,) products of all rows with a vector, without making rows dense."""
        return _times(self.matrix, theta if self.by is None else self.by @ theta)

    def _dense(self, rows: csr_array[np.float64]) -> Floats:
        return np.ascontiguousarray(rows.toarray() if self.by is None else _times(rows, self.by))

    def codes(self) -> Bits:
        """One number a row of the matrix, the same for equal rows."""
        entries = self.matrix.indices.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        entries ^= _mixed(self.matrix.data.view(np.uint64))
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(entries))])
        ends = self.matrix.indptr
        codes: Bits = sums[ends[1:]] - sums[ends[:-1]]  # modulo 2**64
        return codes


def _times(matrix: csr_array[np.float64], M: Floats) -> Floats:
    return np.asarray(matrix @ M)


def _mixed(bits: Bits) -> Bits:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


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


def given_rows(X: Any) -> DenseRows | SparseRows:
    """What the user gave, checked and read-only: sparse only if it is that and not small."""
    if not hasattr(X, "tocsr"):  # as sparse tables of SciPy have
        return DenseRows(frozen(_feature_matrix(X)))
    matrix = _canonical(X)
    K, d = matrix.shape
    if K * d <= LARGE:
        return DenseRows(frozen(matrix.toarray()))
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return SparseRows(matrix)


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


def _canonical(X: Any) -> csr_array[np.float64]:
    """A checked copy in which every entry is finite, not zero and in the order of columns."""
    from scipy.sparse import csr_array

    if np.issubdtype(X.dtype, np.complexfloating) or X.dtype.hasobject:
        raise InvalidInputError(
            f"the features are a sparse table of {X.dtype}; expected real numbers."
        )
    _check_shape(X.shape)
    matrix = csr_array(X, dtype=np.float64, copy=True)
    matrix.sum_duplicates()  # sorts too
    matrix.eliminate_zeros()
    bad = np.flatnonzero(~np.isfinite(matrix.data))
    if bad.size:
        k = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        raise InvalidInputError(
            f"the feature in row {k}, column {matrix.indices[bad[0]]} is {matrix.data[bad[0]]}; "
            "all must be finite numbers."
        )
    if not matrix.nnz:
        raise InvalidInputError("all features are zero; nothing tells the arms apart.")
    return matrix


# Sparse rows in hashes and in JSON


def packed(rows: Rows) -> Iterator[bytes]:
    """The entries of rows that are not zero, as bytes: the same for dense and sparse rows."""
    K, _ = rows.shape
    ends: NDArray[np.integer]
    columns: NDArray[np.integer]
    for start in range(0, K, STEP):
        if isinstance(rows, SparseRows) and rows.by is None:
            part = rows.matrix[start : start + STEP]
            ends, columns, values = part.indptr, part.indices, part.data
        else:
            block = rows.block(start, min(start + STEP, K))
            ends = np.concatenate([[0], np.count_nonzero(block, axis=1).cumsum()])
            columns, values = np.nonzero(block)[1], block[block != 0]
        yield ends.astype(np.int64).tobytes()
        yield columns.astype(np.int64).tobytes()
        yield values.tobytes()


def sparse_to_dict(rows: SparseRows) -> dict[str, list[float]]:
    """Where rows end, in which columns their entries stand, and the entries."""
    matrix = rows.matrix
    return {
        "ends": matrix.indptr[1:].tolist(),
        "columns": matrix.indices.tolist(),
        "values": matrix.data.tolist(),
    }


def sparse_from_dict(data: Mapping[str, ArrayLike], columns: int) -> csr_array[np.float64]:
    """The matrix that `sparse_to_dict` described."""
    from scipy.sparse import csr_array

    ends = np.asarray(data["ends"], dtype=np.int64)
    try:
        matrix = csr_array(
            (
                np.asarray(data["values"], dtype=np.float64),
                np.asarray(data["columns"], dtype=np.int64),
                np.concatenate([np.zeros(1, np.int64), ends]),
            ),
            shape=(len(ends), columns),
        )
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InvalidInputError(f"these are no rows of arms: {error}.") from None
    return matrix
