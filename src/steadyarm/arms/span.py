"""The span of arms: coordinates in it, whatever the scale and dependence of the features.

Also whether two arms are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from steadyarm.arms.rows import (
    LARGE,
    MOST_COLUMNS,
    DenseRows,
    MappedRows,
    Rows,
    frozen,
    is_large,
    row_blocks,
)
from steadyarm.errors import InvalidInputError
from steadyarm.kernels import first_largest

Floats = NDArray[np.float64]

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
    seen: dict[int, int] = {}
    for start, stop in row_blocks(*rows.shape):
        for k, row in enumerate(_rounded(rows.block(start, stop), places), start):
            earlier = seen.setdefault(hash(row.tobytes()), k)
            if earlier != k and (_rounded(rows.take(np.array([earlier])), places) == row).all():
                return earlier, k
    return None


def _rounded(block: Floats, places: int | None) -> Floats:
    return (block if places is None else np.round(block, places)) + 0.0  # -0 becomes 0
