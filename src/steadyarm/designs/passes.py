"""Passes over the rows of a large arm set, in blocks that stay in the cache, in a few threads.

For all solvers of large sets; `quick_forms` takes over where a set has structure.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.rows import Rows
from steadyarm.arms.walsh import walsh_of
from steadyarm.designs.quick_forms import quick_forms
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import eigh, gram, matmul, row_dots

__all__ = ["blocks", "farthest_along", "in_lanes", "leverages", "radii", "span_of"]

BLOCK_FLOATS = 2**18  # 2 MB a block: few calls, and small enough for the cache
LANES = 4  # threads at most
CLEAR = 1e-9  # a Gram matrix whose eigenvalues spread less than this needs no second look
SHIFT = 1e-15  # eigenvalues below this share of the largest are rounding in a Gram matrix
DEPENDENT = 1e-13  # what remains of a dependent direction when it is looked at again

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Answer = TypeVar("Answer")


class Span(NamedTuple):
    """The span of the arms: x @ map are coordinates in which the uniform design is the identity.

    Attributes
    ----------
    map : (columns, r) array
    passes : how many passes over the rows it took
    """

    map: Floats
    passes: int


def blocks(count: int, columns: int) -> list[tuple[int, int]]:
    """Where blocks of rows of so many columns start and stop."""
    step = max(BLOCK_FLOATS // columns, 64)
    return [(start, min(start + step, count)) for start in range(0, count, step)]


def leverages(rows: Rows, to: Floats, among: Indices | None = None) -> Floats:
    """Squared lengths of x @ to for all rows x, or for those among: one pass."""
    quick = quick_forms(rows, gram(to.T))
    if quick is not None:
        scores: Floats = np.maximum(quick, 0.0)
        return scores if among is None else scores[among]
    count, columns = rows.shape
    count = count if among is None else among.size
    answer = np.empty(count)

    def score(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            X = rows.block(start, stop) if among is None else rows.take(among[start:stop])
            image = matmul(X, to)
            answer[start:stop] = row_dots(image, image)

    in_lanes(score, count, columns)
    return answer


def radii(rows: Rows, to: Floats, middle: Floats) -> Floats:
    """Distances of the points x @ to from the middle: one pass."""
    answer = np.empty(rows.shape[0])

    def measure(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            Y = matmul(rows.block(start, stop), to)
            Y -= middle
            answer[start:stop] = np.sqrt(row_dots(Y, Y))

    in_lanes(measure, *rows.shape)
    return answer


def span_of(rows: Rows) -> Span:
    """Coordinates of the span of the rows, in which equal weights on all are the identity.

    The eigenvectors of the Gram matrix show directions down to about 1e-7 of the largest. Where
    some are small, a second pass in coordinates that enlarge them tells small from dependent.
    """
    K, columns = rows.shape
    if walsh_of(rows) is not None:  # the uniform design is the identity
        return Span(np.eye(columns), 0)
    table = _gram(rows, None)
    size = np.sqrt(np.diag(table))
    if not np.isfinite(size).all():
        raise InvalidInputError(
            f"column {int(np.flatnonzero(~np.isfinite(size))[0])} of the rows holds a number that "
            "is not finite, or too large to be squared."
        )
    if not size.any():
        raise InvalidInputError("all rows are zero; nothing tells the arms apart.")
    size[size == 0] = 1.0
    values, vectors = eigh(table / size / size[:, None])
    to = vectors / np.sqrt(np.maximum(values, SHIFT * values[-1])) / size[:, None]
    if values[0] > CLEAR * values[-1]:
        return Span(np.ascontiguousarray(to) * np.sqrt(K), 1)
    values, vectors = eigh(_gram(rows, to))
    kept = values > DEPENDENT * values[-1]
    to = matmul(to, vectors[:, kept] / np.sqrt(values[kept]))
    return Span(np.ascontiguousarray(to) * np.sqrt(K), 2)


def farthest_along(rows: Rows, to: Floats) -> Indices:
    """For each column of `to`, the row with the largest product with it: one pass."""
    best = np.full(to.shape[1], -1.0)
    where = np.zeros(to.shape[1], dtype=np.int64)
    columns = np.arange(to.shape[1])
    for start, stop in blocks(*rows.shape):
        size = np.abs(matmul(rows.block(start, stop), to))
        first = size.argmax(axis=0)
        found = size[first, columns]
        better = found > best
        best[better], where[better] = found[better], start + first[better]
    return np.unique(where)


def _gram(rows: Rows, to: Floats | None) -> Floats:
    """Sum of x x' over all rows, mapped by `to` if given."""
    columns = rows.shape[1] if to is None else to.shape[1]

    def add(lane: list[tuple[int, int]]) -> Floats:
        total = np.zeros((columns, columns))
        for start, stop in lane:
            X = rows.block(start, stop)
            total += gram(X if to is None else matmul(X, to))
        return total

    return sum(in_lanes(add, *rows.shape), np.zeros((columns, columns)))


def in_lanes(
    work: Callable[[list[tuple[int, int]]], Answer], count: int, columns: int
) -> list[Answer]:
    """Work on blocks of rows in threads; always as many lanes, so that sums come out the same."""
    every = blocks(count, columns)
    lanes = [every[lane::LANES] for lane in range(LANES)]
    workers = min(LANES, os.cpu_count() or 1)
    if workers == 1 or len(every) < 2 * LANES:
        return [work(lane) for lane in lanes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, lanes))
