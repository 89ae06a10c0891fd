"""Arms as rows of a matrix that need not be stored, and as coordinates in their own span.

A solver for many arms reads rows in blocks or by index and never asks for all of them at once.
`generated.py` makes the rows of factorial and bundle sets from their index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from steadyarm.errors import InvalidInputError
from steadyarm.kernels import first_largest

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
    """The bounds of blocks of rows, each small enough for the cache."""
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
    shape: tuple[int, int] = field(init=False)

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
        object.__setattr__(self, "shape", (int(self.array.shape[0]), int(self.array.shape[1])))

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


def read_rows(X: Any) -> DenseRows:
    """The rows that the user gave, checked and read-only; sparse tables of SciPy become dense."""
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


# The span of arms: coordinates in it, whatever the scale and dependence of the features


MOST_SPREAD = 1e3  # of singular values and column sizes, up to which features stay as they are
PLACES = 12  # decimals of coordinates, within which arms are the same
SAME = 1e-6  # of the largest feature: how far stored coordinates may miss the features


class Span(NamedTuple):
    """Arms in a basis of their span.

    Attributes
    ----------
    rows : their coordinates, (K, r)
    basis : (d, r) array: features are ``coordinates @ basis.T``; None if they are the coordinates
    dual : (d, r) array: ``coordinates = features @ dual``; None in the same case
    """

    rows: Rows
    basis: Floats | None = None
    dual: Floats | None = None


def span_of(given: DenseRows, stored: bool | None = None) -> Span:
    """The span of arms: their coordinates, stored for few arms and computed on demand for many.

    Independent features of similar scale are the coordinates themselves. Otherwise columns are
    scaled and the arms written in an orthogonal basis, so that a year beside a share, or a column
    that repeats others, does no harm to later arithmetic.

    stored : whether coordinates are stored; by default those of sets that are not large
    """
    K, d = given.shape
    stored = not is_large(K, d) if stored is None else stored
    size = _largest(given)
    size[size == 0] = 1.0
    if stored:
        left, singular, right = np.linalg.svd(given.array / size, full_matrices=False)
    else:
        _check_columns(d)
        singular, right = _by_rotation(given, size)
    if _may_stay(singular, size, K, d):
        return Span(given)
    basis, dual, turn = map(frozen, _bases(singular, right, size, K))
    if stored:
        coordinates = left[:, : len(turn)] @ (turn * np.sqrt(K))
        return Span(DenseRows(frozen(coordinates)), basis, dual)
    return Span(MappedRows(given, dual), basis, dual)


def span_to_dict(span: Span) -> dict[str, list[list[float]]]:
    """Basis and dual of a span, and the coordinates where they are stored, as lists."""
    assert span.basis is not None
    assert span.dual is not None
    stored = {"basis": span.basis.tolist(), "dual": span.dual.tolist()}
    if isinstance(span.rows, DenseRows):
        stored["coordinates"] = np.asarray(span.rows.array).tolist()
    return stored


def span_from_dict(data: Mapping[str, ArrayLike] | None, given: DenseRows) -> Span:
    """The span that `span_to_dict` described, of the rows given; None for the rows themselves.

    Examples
    --------
    >>> rows = DenseRows(np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    >>> span = span_of(rows)
    >>> again = span_from_dict(span_to_dict(span), rows)
    >>> bool(np.array_equal(again.rows.block(0, 3), span.rows.block(0, 3)))
    True
    """
    if data is None:
        return Span(given)
    try:
        basis, dual = (np.array(data[part], dtype=np.float64) for part in ("basis", "dual"))
        stored = data.get("coordinates")
        coordinates = None if stored is None else np.array(stored, dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the arms' coordinates cannot be read ({error!r}).") from None
    (K, d), r = given.shape, basis.shape[-1]
    if basis.shape != (d, r) or dual.shape != (d, r):
        raise InvalidInputError(
            f"the arms' basis and dual have shapes {basis.shape} and {dual.shape}; expected "
            f"({d}, rank), a row for each feature."
        )
    rows: Rows = MappedRows(given, dual)
    if coordinates is not None:
        if coordinates.shape != (K, r):
            raise InvalidInputError(
                f"the arms' coordinates have shape {coordinates.shape}; expected ({K}, {r})."
            )
        rows = DenseRows(frozen(coordinates))
    few = np.arange(min(K, LARGE // d + 1))
    features = given.take(few)
    missed = np.abs(rows.take(few) @ basis.T - features).max(axis=0)
    if not (missed <= SAME * np.abs(features).max(axis=0).clip(np.finfo(float).tiny)).all():
        raise InvalidInputError(
            "the arms' coordinates do not belong to their features: coordinates times basis are "
            "other numbers. Leave the span out, and it is derived."
        )
    return Span(rows, frozen(basis), frozen(dual))


def _largest(rows: Rows) -> Floats:
    """(d,) the largest size in each column."""
    largest = np.zeros(rows.shape[1])
    for start, stop in row_blocks(*rows.shape):
        largest = np.maximum(largest, np.abs(rows.block(start, stop)).max(axis=0))
    return largest


def _check_columns(d: int) -> None:
    if d > MOST_COLUMNS:
        raise InvalidInputError(
            f"the arms have {d:,} features; at most {MOST_COLUMNS:,} are supported. Leave some out."
        )


def _by_rotation(rows: Rows, size: Floats) -> tuple[Floats, Floats]:
    """Singular values, falling, and right singular vectors of scaled rows, in dense blocks."""
    K, d = rows.shape
    R: NDArray[np.floating] = np.empty((0, d))
    step = max(LARGE // d, 4 * d)
    for start in range(0, K, step):
        block = rows.block(start, min(start + step, K)) / size
        R = scipy.linalg.qr(np.vstack([R, block]), mode="r")[0][:d]
    _, singular, right = np.linalg.svd(R)
    return singular, right


def _may_stay(singular: Floats, size: Floats, K: int, d: int) -> bool:
    with np.errstate(over="ignore"):
        least = max(singular[-1], np.finfo(np.float64).tiny)
        spread = singular[0] / least * size.max() / size.min()
    return _rank(singular, K, d) == d and bool(spread <= MOST_SPREAD)


def _rank(singular: Floats, K: int, d: int) -> int:
    return int((singular > singular[0] * _rounding(K, d)).sum())


def _rounding(K: int, d: int) -> float:
    """The part of the largest singular value that may be rounding alone."""
    return max(K, d) * float(np.finfo(np.float64).eps)


def _bases(singular: Floats, rows: Floats, size: Floats, K: int) -> tuple[Floats, Floats, Floats]:
    """Basis and dual, so that coordinates are left singular vectors times √K, turned; and the turn.

    Singular vectors of equal singular values depend on the processor. The turn (r, r) makes the
    basis unique: the features that span it become triangular, with a positive diagonal.
    """
    rank = _rank(singular, K, len(size))
    scale = singular[:rank] / np.sqrt(K)
    own = rows[:rank].T
    left = own * scale
    pivots = []
    for _ in range(rank):  # the feature farthest from the span of those before
        pivots.append(int(first_largest(np.square(left).sum(axis=1))))
        direction = left[pivots[-1]] / np.linalg.norm(left[pivots[-1]])
        left = left - np.outer(left @ direction, direction)
    turn, triangle = np.linalg.qr((own[pivots] * scale).T)
    turn = turn * np.where(np.diag(triangle) < 0, -1.0, 1.0)
    return size[:, None] * (own * scale) @ turn, (own / scale / size[:, None]) @ turn, turn


def check_distinct(features: Rows, names: Sequence[str]) -> None:
    """Refuse arms with the same features."""
    if (pair := twin_in(features)) is not None:
        one, other = pair
        raise InvalidInputError(
            f"arms {one} ({names[one]!r}) and {other} ({names[other]!r}) have identical features, "
            "so no data can tell them apart; remove one or add a feature in which they differ."
        )


def check_apart(coordinates: Rows, names: Sequence[str]) -> None:
    """Refuse arms whose features differ by rounding alone."""
    if (pair := twin_in(coordinates, PLACES)) is not None:
        raise InvalidInputError(
            f"arm {pair[1]} ({names[pair[1]]!r}) differs from another only by rounding errors of "
            "its largest features; rescale or centre the features."
        )


def twin_in(rows: Rows, places: int | None = None) -> tuple[int, int] | None:
    """The first arm that is the same as an earlier one, after that one; None if all differ.

    places : decimals to which rows are rounded first; None for none

    Examples
    --------
    >>> twin_in(DenseRows(np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 2.0]])))
    (0, 2)
    """
    seen: dict[int, int] = {}
    for start, stop in row_blocks(*rows.shape):
        for k, row in enumerate(_round(rows.block(start, stop), places), start):
            earlier = seen.setdefault(hash(row.tobytes()), k)
            if earlier != k and (_round(rows.take(np.array([earlier])), places) == row).all():
                return earlier, k
    return None


def _round(block: Floats, places: int | None) -> Floats:
    return (block if places is None else np.round(block, places)) + 0.0  # -0 becomes 0
