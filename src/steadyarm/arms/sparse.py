"""Sparse arms: rows of which only the entries that are not zero are kept.

One-hot arms and the columns of a formula are mostly zeros. They are stored as compressed rows and
become dense a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from steadyarm.arms.names import LARGE, check_shape, feature_matrix
from steadyarm.arms.rows import DenseRows, Floats, Indices, Rows, walsh_of
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import matmul, sparse_times

__all__ = [
    "SparseRows",
    "given_rows",
    "packed",
    "row_blocks",
    "sparse_from_dict",
    "sparse_to_dict",
    "values_of",
]

STEP = 256  # rows that are packed together

Bits = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a sparse matrix, times a dense one if there is one; dense in blocks alone.

    Parameters
    ----------
    matrix : (K, d) in the canonical form that `given_rows` makes
    by : (d, r) array, by which rows are multiplied; None for the rows themselves

    Examples
    --------
    >>> rows = SparseRows(csr_array(np.eye(3)))
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
        return _times(self.matrix, theta if self.by is None else matmul(self.by, theta))

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
    return sparse_times(matrix.data, matrix.indices, matrix.indptr, M)


def _mixed(bits: Bits) -> Bits:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def given_rows(X: Any) -> DenseRows | SparseRows:
    """What the user gave, checked and read-only: sparse only if it is that and not small."""
    if not issparse(X):
        return DenseRows(_read_only(np.ascontiguousarray(feature_matrix(X))))
    matrix = _canonical(X)
    K, d = matrix.shape
    if K * d <= LARGE:
        return DenseRows(_read_only(matrix.toarray()))
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.setflags(write=False)
    return SparseRows(matrix)


def _canonical(X: Any) -> csr_array[np.float64]:
    """A checked copy in which every entry is finite, not zero and in the order of columns."""
    if np.issubdtype(X.dtype, np.complexfloating) or X.dtype.hasobject:
        raise InvalidInputError(
            f"the features are a sparse table of {X.dtype}; expected real numbers."
        )
    check_shape(X.shape)
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


def _read_only(array: Floats) -> Floats:
    array = array.view()
    array.setflags(write=False)
    return array


def packed(rows: Rows) -> Any:
    """The entries of rows that are not zero, as bytes: the same for dense and sparse rows."""
    K, _ = rows.shape
    for start in range(0, K, STEP):
        if isinstance(rows, SparseRows) and rows.by is None:
            part = rows.matrix[start : start + STEP]
        else:
            part = csr_array(rows.block(start, min(start + STEP, K)))
        yield part.indptr.astype(np.int64).tobytes()
        yield part.indices.astype(np.int64).tobytes()
        yield part.data.tobytes()


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


# The values of all arms for one parameter, in blocks or through the structure of the set.


def values_of(rows: Rows, parameter: Floats) -> Floats:
    """(K,) products of all rows with a parameter (r,).

    Examples
    --------
    >>> from steadyarm.arms.rows import FactorialRows
    >>> values_of(FactorialRows([2, 2]), np.array([1.0, 0.5, 0.25, 0.0])).tolist()
    [0.25, 0.75, 1.25, 1.75]
    """
    if isinstance(rows, SparseRows):
        return rows.values(parameter)
    walsh = walsh_of(rows)
    if walsh is not None:
        return walsh.products(parameter)
    out = np.empty(rows.shape[0])
    for start, stop in row_blocks(*rows.shape):
        out[start:stop] = matmul(rows.block(start, stop), parameter)
    return out


def row_blocks(count: int, columns: int) -> Iterator[tuple[int, int]]:
    """Where blocks of rows start and stop, each of a handy size."""
    step = max(LARGE // columns, 64)
    for start in range(0, count, step):
        yield start, min(start + step, count)
