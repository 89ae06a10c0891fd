"""Passes over the rows of a large arm set: in blocks that stay in the cache, in a few threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from steadyarm.arms.generated import quick_forms, walsh_of
from steadyarm.arms.rows import Rows, row_blocks
from steadyarm.decompositions import eigh
from steadyarm.errors import InvalidInputError
from steadyarm.linalg import gram, matmul, row_dots

LANES = 4  # threads at most
CLEAR = 1e-9  # a Gram matrix whose eigenvalues spread less than this needs no second pass
SHIFT = 1e-15  # eigenvalues below this share of the largest are rounding in a Gram matrix
DEPENDENT = 1e-13  # what remains of a dependent direction in a second pass

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Answer = TypeVar("Answer")


def leverages(rows: Rows, to: Floats) -> Floats:
    """(K,) squared lengths of x @ to for all rows x: one pass."""
    quick = quick_forms(rows, gram(to.T))
    if quick is not None:
        return np.maximum(quick, 0.0)
    answer = np.empty(rows.shape[0])

    def score(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            image = matmul(rows.block(start, stop), to)
            answer[start:stop] = row_dots(image, image)

    _in_lanes(score, *rows.shape)
    return answer


def radii(rows: Rows, to: Floats, middle: Floats) -> Floats:
    """Distances of the points x @ to from the middle: one pass."""
    answer = np.empty(rows.shape[0])

    def measure(lane: list[tuple[int, int]]) -> None:
        for start, stop in lane:
            Y = matmul(rows.block(start, stop), to)
            Y -= middle
            answer[start:stop] = np.sqrt(row_dots(Y, Y))

    _in_lanes(measure, *rows.shape)
    return answer


def span_of(rows: Rows) -> Floats:
    """(columns, r) map to coordinates x @ map of the span, where equal weights have A = I.

    The eigenvectors of the Gram matrix show directions down to about 1e-7 of the largest. Where
    some are small, a second pass in coordinates that enlarge them tells small from dependent.
    """
    K, columns = rows.shape
    if walsh_of(rows) is not None:
        return np.eye(columns)
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
        return np.asarray(np.ascontiguousarray(to) * np.sqrt(K))
    values, vectors = eigh(_gram(rows, to))
    kept = values > DEPENDENT * values[-1]
    to = matmul(to, vectors[:, kept] / np.sqrt(values[kept]))
    return np.asarray(np.ascontiguousarray(to) * np.sqrt(K))


def farthest_along(rows: Rows, to: Floats) -> Indices:
    """For each column of `to`, the row with the largest product with it: one pass."""
    best = np.full(to.shape[1], -1.0)
    where = np.zeros(to.shape[1], dtype=np.int64)
    columns = np.arange(to.shape[1])
    for start, stop in row_blocks(*rows.shape):
        size = np.abs(matmul(rows.block(start, stop), to))
        first = size.argmax(axis=0)
        found = size[first, columns]
        better = found > best
        best[better], where[better] = found[better], start + first[better]
    return np.unique(where)


def top(scores: Floats, count: int) -> Indices:
    """Indices of the largest scores, largest first and equal ones in their order."""
    chosen = np.arange(scores.size)
    if scores.size > count:
        least = np.partition(scores, scores.size - count)[scores.size - count]
        chosen = np.flatnonzero(scores >= least)
    return chosen[np.argsort(-scores[chosen], kind="stable")[:count]].astype(np.int64)


def _gram(rows: Rows, to: Floats | None) -> Floats:
    """Sum of x x' over all rows, mapped by `to` if given."""
    columns = rows.shape[1] if to is None else to.shape[1]

    def add(lane: list[tuple[int, int]]) -> Floats:
        total = np.zeros((columns, columns))
        for start, stop in lane:
            X = rows.block(start, stop)
            total += gram(X if to is None else matmul(X, to))
        return total

    return sum(_in_lanes(add, *rows.shape), np.zeros((columns, columns)))


def _in_lanes(
    work: Callable[[list[tuple[int, int]]], Answer], count: int, columns: int
) -> list[Answer]:
    """Work on blocks of rows in threads; always as many lanes, so that sums come out the same."""
    every = row_blocks(count, columns)
    lanes = [every[lane::LANES] for lane in range(LANES)]
    workers = min(LANES, os.cpu_count() or 1)
    if workers == 1 or len(every) < 2 * LANES:
        return [work(lane) for lane in lanes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(work, lanes))
