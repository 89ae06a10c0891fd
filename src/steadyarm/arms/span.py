"""The span of arms: coordinates in it, whatever the scale and dependence of the features.

Also whether two arms are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.rows import (
    LARGE,
    MOST_COLUMNS,
    DenseRows,
    MappedRows,
    Rows,
    SparseRows,
    frozen,
    is_large,
)
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import first_largest, gram

Floats = NDArray[np.float64]

MOST_SPREAD = 1e3  # of singular values and column sizes, up to which features stay as they are
PLACES = 12  # decimals of coordinates, within which arms are the same
SAME = 1e-6  # of the largest feature: how far stored coordinates may miss the features
CLEAR = 1e-8  # of the largest eigenvalue: smaller ones may be rounding


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


def span_of(given: DenseRows | SparseRows) -> Span:
    """The span of arms, few or many, dense or sparse."""
    if isinstance(given, SparseRows) or is_large(*given.shape):
        return span_of_rows(given)
    return span_of_features(given)


def span_of_features(given: DenseRows) -> Span:
    """Coordinates of few arms in their span, stored.

    Independent features of similar scale are the coordinates themselves. Otherwise columns are
    scaled and the arms written in an orthogonal basis, so that a year beside a share, or a column
    that repeats others, does no harm to later arithmetic.
    """
    features, (K, d) = np.asarray(given.array), given.shape
    size = np.abs(features).max(axis=0)
    size[size == 0] = 1.0
    left, singular, rows = np.linalg.svd(features / size, full_matrices=False)
    if _may_stay(singular, size, K, d):
        return Span(given)
    basis, dual, turn = _bases(singular, rows, size, K)
    coordinates = left[:, : len(turn)] @ (turn * np.sqrt(K))
    return Span(DenseRows(frozen(coordinates)), frozen(basis), frozen(dual))


def span_of_rows(rows: Rows) -> Span:
    """The same for many arms, dense or sparse, whose coordinates are not stored.

    Passes over the rows compute the products of columns with each other. Products square the
    singular values, so that rounding hides small ones. The apparent null space is therefore
    verified on the arms; where that fails, the slower way without squares computes them.
    """
    K, d = rows.shape
    size = _largest(rows)
    size[size == 0] = 1.0
    table = _products(rows, size)
    apart = table.ndim == 1
    if _may_stay(_roots(np.sort(table) if apart else np.linalg.eigh(table)[0]), size, K, d):
        return Span(rows)
    if apart:
        _check_columns(d)
        table = np.diag(table)
    eigenvalues, vectors = np.linalg.eigh(table)
    kept = eigenvalues > CLEAR * eigenvalues[-1]
    singular, right = _roots(eigenvalues[kept]), vectors[:, kept].T[::-1]
    if not _vanish(rows, vectors[:, ~kept] / size[:, None], singular[0] * _rounding(K, d)):
        singular, right = _by_rotation(rows, size)
        if _may_stay(singular, size, K, d):
            return Span(rows)
    basis, dual = map(frozen, _bases(singular, right, size, K)[:2])
    mapped = SparseRows(rows.matrix, dual) if _is_sparse(rows) else MappedRows(rows, dual)
    return Span(mapped, basis, dual)


def span_to_dict(span: Span) -> dict[str, list[list[float]]]:
    """Basis and dual of a span, and the coordinates where they are stored, as lists."""
    assert span.basis is not None
    assert span.dual is not None
    stored = {"basis": span.basis.tolist(), "dual": span.dual.tolist()}
    if isinstance(span.rows, DenseRows):
        stored["coordinates"] = np.asarray(span.rows.array).tolist()
    return stored


def span_from_dict(data: Mapping[str, ArrayLike] | None, given: DenseRows | SparseRows) -> Span:
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
    rows: Rows
    if coordinates is None:
        mapped = SparseRows(given.matrix, dual) if _is_sparse(given) else MappedRows(given, dual)
        rows = mapped
    else:
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


def _is_sparse(rows: Rows) -> TypeGuard[SparseRows]:
    return isinstance(rows, SparseRows) and rows.by is None


def _blocks(rows: Rows, least: int = 1) -> Iterator[Floats]:
    K, d = rows.shape
    step = max(LARGE // d, least)
    for start in range(0, K, step):
        yield rows.block(start, min(start + step, K))


def _largest(rows: Rows) -> Floats:
    """(d,) the largest size in each column."""
    if _is_sparse(rows):
        return np.asarray(abs(rows.matrix).max(axis=0).toarray())
    largest = np.zeros(rows.shape[1])
    for block in _blocks(rows):
        largest = np.maximum(largest, np.abs(block).max(axis=0))
    return largest


def _products(rows: Rows, size: Floats) -> Floats:
    """(d, d) products of scaled columns with each other; the diagonal (d,) if all else is zero."""
    d = len(size)
    if _is_sparse(rows):
        columns, ends = rows.matrix.indices, rows.matrix.indptr
        data = rows.matrix.data / size[columns]
        if np.diff(ends).max() <= 1:
            return np.bincount(columns, np.square(data), minlength=d).astype(np.float64)
        _check_columns(d)
        scaled = rows.matrix.copy()
        scaled.data = data
        return np.asarray((scaled.T @ scaled).toarray())
    _check_columns(d)
    table = np.zeros((d, d))
    for block in _blocks(rows, d):
        table += gram(block / size)
    return table


def _check_columns(d: int) -> None:
    if d > MOST_COLUMNS:
        raise InvalidInputError(
            f"the arms have {d:,} features that overlap, differ much in scale or are zero for all "
            f"arms; at most {MOST_COLUMNS:,} such features are supported. Leave some out."
        )


def _vanish(rows: Rows, vectors: Floats, most: float) -> bool:
    """Whether no column of rows times vectors is longer than `most`."""
    lengths = np.zeros(vectors.shape[1])
    base = SparseRows(rows.matrix, vectors) if _is_sparse(rows) else MappedRows(rows, vectors)
    for block in _blocks(base) if len(lengths) else ():
        lengths += np.square(block).sum(axis=0)
    return bool((lengths <= most**2).all())


def _by_rotation(rows: Rows, size: Floats) -> tuple[Floats, Floats]:
    """Singular values, falling, and right singular vectors of scaled rows, in dense blocks."""
    R = np.empty((0, len(size)))
    for block in _blocks(rows, 4 * len(size)):
        R = np.linalg.qr(np.vstack([R, block / size]))[1]
    _, singular, right = np.linalg.svd(R)
    return singular, right


def _roots(eigenvalues: NDArray[np.floating]) -> Floats:
    """Singular values, falling, of eigenvalues that rise."""
    roots: Floats = np.sqrt(np.maximum(eigenvalues, 0.0))[::-1]
    return roots


def _may_stay(singular: Floats, size: Floats, K: int, d: int) -> bool:
    with np.errstate(over="ignore"):
        least = max(singular[-1], np.finfo(np.float64).tiny)
        spread = singular[0] / least * size.max() / size.min()
    return _rank(singular, K, d) == d and bool(spread <= MOST_SPREAD)


def _rank(singular: Floats, K: int, d: int) -> int:
    return int((singular > singular[0] * _rounding(K, d)).sum())


def _rounding(K: int, d: int) -> float:
    """Of the largest singular value: what may be rounding alone."""
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
    K, codes = rows.shape[0], _codes(rows, places)
    _, first, group = np.unique(codes, return_index=True, return_inverse=True)
    for k in np.flatnonzero(first[group] != np.arange(K)):
        alike = np.flatnonzero(codes[:k] == codes[k])
        same = _rounded(rows.take(alike), places) == _rounded(rows.take(np.array([k])), places)
        if same.all(axis=1).any():
            return int(alike[same.all(axis=1).argmax()]), int(k)
    return None


def _codes(rows: Rows, places: int | None) -> NDArray[np.uint64]:
    """(K,) one number a row, the same for equal rows."""
    if _is_sparse(rows) and places is None:
        return rows.codes()
    K, d = rows.shape
    step = max(LARGE // d, 1)
    codes = np.empty(K, dtype=np.uint64)
    for start in range(0, K, step):
        block = _rounded(rows.block(start, min(start + step, K)), places)
        codes[start : start + len(block)] = _hashed(block)
    return codes


def _rounded(block: Floats, places: int | None) -> Floats:
    return (block if places is None else np.round(block, places)) + 0.0  # -0 becomes 0


def _hashed(block: Floats) -> NDArray[np.uint64]:
    """One number a row, the same for equal rows."""
    codes = np.full(len(block), 14695981039346656037, dtype=np.uint64)
    for column in np.ascontiguousarray(block.T).view(np.uint64):
        codes = (codes ^ column ^ (column >> np.uint64(29))) * np.uint64(1099511628211)
        codes ^= codes >> np.uint64(32)
    return codes
