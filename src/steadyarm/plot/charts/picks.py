"""Which variants are picked out in colour, and in which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.plot.chart import Series

__all__ = ["MOST", "colours", "matched", "nearest", "others", "thinned", "wanted"]

MOST = 8  # as many colours as there are


def nearest(distances: ArrayLike, first: int, may_win: ArrayLike, most: int = MOST) -> list[int]:
    """The first, those that can still win, then the others; each by distance from the first."""
    away = np.nan_to_num(np.abs(np.asarray(distances, float)), nan=np.inf)
    order = np.lexsort((away, ~np.asarray(may_win, bool)))
    return [first, *(int(k) for k in order if k != first)][:most]


def wanted(picked: Sequence[int] | None, own: Sequence[int]) -> list[int]:
    """Those that the caller picked, else the chart's own choice; at most as many as colours."""
    return list(own if picked is None else picked)[:MOST]


def matched(picked: Sequence[int], names: Sequence[str], here: Sequence[str]) -> list[int] | None:
    """Those picked by their place among the names, by their place here; None if there are none.

    Of large sets each chart may have other variants.

    Examples
    --------
    >>> matched([2, 0], ["A", "B", "C"], ["C", "D", "A"])
    [0, 2]
    """
    if names is here or names == here:
        return list(picked)
    places = {name: place for place, name in enumerate(here)}
    found = [places[names[k]] for k in picked if names[k] in places]
    return found or None


def colours(picked: Iterable[int]) -> dict[int, int]:
    """A colour for each: as far as possible the same in all charts and at all times."""
    free = set(range(MOST))
    found = {}
    for k in sorted(picked):
        slot = next(s % MOST for s in range(k, k + MOST) if s % MOST in free)
        free.discard(slot)
        found[k] = slot
    return found


def others(
    x: tuple[object, ...],
    values: NDArray[np.float64],
    left: Sequence[int],
    name: str,
    weak: NDArray[np.bool_],
) -> tuple[Series, ...]:
    """All that is not picked out as one quiet series (with gaps between variants), or none."""
    if not left:
        return ()
    rows = thinned(len(x), 80)
    ys = np.concatenate([np.append(values[rows, k], np.nan) for k in left])
    xs = tuple(x[j] for j in (*rows, rows[-1])) * len(left)
    return (Series(name, xs, ys, color=None, weak=np.tile(weak[[*rows, rows[-1]]], len(left))),)


def thinned(count: int, most: int) -> list[int]:
    """At most so many of the indices, the first and the last among them."""
    return [int(j) for j in np.unique(np.linspace(0, count - 1, min(count, most)).round())]
