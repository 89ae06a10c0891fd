"""Covariates of a log: their columns, their sums where the log lives, and the rewards they adjust.

The mathematics is that of live tests, see `steadyarm.covariates`. Rows with a reward count. Slopes
come from earlier rows, and the mean of the covariates from a stretch of the log whose limits do
not depend on what was drawn: a segment, or buckets of time with some sixtieth of the rows. Within
it probabilities may change from row to row, since the scores of a row sum to one over the arms in
expectation, whatever its probabilities.

Where units, or clusters, have several rows, the sum over a unit is what varies, so slopes are those
of these sums. They come from the other half of the units, since all units may be there from the
first day: what a unit was drawn does not matter to the slope that it is adjusted with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.allocations import Piece, Tally
from steadyarm.analysis.log import COVARIATE, Log
from steadyarm.arms import ArmSet
from steadyarm.covariates import Moments, Slopes, adjusted, checked_covariates, level_variance
from steadyarm.errors import InvalidInputError
from steadyarm.segments import SegmentStats

STRETCHES = 60  # into which a log is cut, if its buckets are not longer

Floats = NDArray[np.float64]
Rows = list[dict[str, Any]]


def covariate_columns(given: Any, columns: Mapping[str, str] | None) -> dict[str, str]:
    """Our names to theirs of the columns that hold covariates."""
    names = checked_covariates(given)
    mapped = {"reward": "reward", "arm": "arm"} | dict(columns or {})
    for ours in ("reward", "arm"):
        if mapped[ours] in names:
            raise InvalidInputError(
                f"the covariate {mapped[ours]!r} is the {ours} itself; covariates are what was "
                "known of a unit before it was assigned.",
                field="covariates",
            )
    return {f"{COVARIATE}{i}": name for i, name in enumerate(names, 1)}


def moments_of(rows: Iterable[Mapping[str, Any]], names: Sequence[str], end: str = "") -> Moments:
    """Moments (1, K) of the arms from rows of sums; every row that counts has a reward.

    end : of the sums' names, "w" for those over p²
    """
    rows = list(rows)
    c = sum(name.startswith("zr") and name[2:].isdigit() for name in rows[0])
    found = Moments.empty(1, len(names), c)
    place = {name: k for k, name in enumerate(names)}
    for row in rows:
        k = place[row["arm"]]
        found.assigned[0, k] += int(row["m"])
        for a in range(c):
            found.seen[0, k, a] += row[f"z{a}{end}"] or 0.0
            found.products[0, k, a] += row[f"zr{a}{end}"] or 0.0
            for b in range(a + 1):
                found.squares[0, k, a, b] += row[f"zz{a}_{b}{end}"] or 0.0
                if b < a:
                    found.squares[0, k, b, a] = found.squares[0, k, a, b]
    if not (np.isfinite(found.squares).all() and np.isfinite(found.products).all()):
        raise _too_large()
    return replace(found, totals=found.seen, total_squares=found.squares)


def _too_large() -> InvalidInputError:
    return InvalidInputError(
        "a covariate has values that are infinite or too large to be squared; mend them, or "
        "leave the covariate out.",
        field="covariates",
    )


def stretches(rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """(J,) the stretch of each bucket with so many rows: neighbours are put together.

    Examples
    --------
    >>> stretches([50] * 120)[:5]
    array([0, 0, 1, 1, 2])
    """
    least, place, there = sum(map(int, rows)) / STRETCHES, 0, 0
    found = np.zeros(len(rows), dtype=np.int64)
    for j, count in enumerate(rows):
        if there and there + int(count) > max(least, 1):
            place, there = place + 1, 0
        found[j] = place
        there += int(count)
    return found


def adjusted_by_unit(log: Log, table: Any, names: Sequence[str]) -> tuple[Any, float]:
    """The table with adjusted rewards, and the variance of what all arms share of it.

    Units are numbered in their order; those with even numbers are one half, the others the other.

    Parameters
    ----------
    table : as `sums.readable` makes it, with a unit in every row
    names : of the arms
    """
    import ibis

    used = table.filter(table.r.notnull())
    c = sum(name.startswith(COVARIATE) for name in table.columns) + 1
    units = used.select("unit").distinct()
    place = ibis.row_number().over(ibis.window(order_by=units.unit))
    halves = units.mutate(half=place % 2)
    if log.ours and log.backend == "duckdb":  # joined twice
        halves = log.kept("halves of units", halves)
    used = used.join(halves, "unit")
    each = used.group_by("half", "unit", "arm").aggregate(
        x0=used.count().cast("float64"),
        x1=used.r.sum(),
        **{f"x{a + 2}": used[f"z{a}"].sum() for a in range(c)},
    )
    products = {
        f"x{a}_{b}": (each[f"x{a}"] * each[f"x{b}"]).sum()
        for a in range(c + 2)
        for b in range(a + 1)
    }
    rows = log.fetch(
        each.group_by("half", "arm").aggregate(
            units=each.count(), **{f"x{a}": each[f"x{a}"].sum() for a in range(c + 2)}, **products
        )
    )
    parts = [_around_means([row for row in rows if row["half"] == h], names, c) for h in (0, 1)]
    change, level = ibis.literal(0.0), 0.0
    for h, (_, moments, mean) in enumerate(parts):
        stats, others, _ = parts[1 - h]
        beta = Slopes.none(1, c).after(stats, others).fitted(moments)[0]
        off = ibis.literal(0.0)
        for a in range(c):
            off = off + float(beta[a]) * (used[f"z{a}"] - float(mean[a]))
        change = ibis.ifelse(used.half == h, off, change)
        level += float(beta @ moments.squares[0].sum(axis=0) @ beta)
    return used.mutate(r=used.r - change).drop("half"), level


def _around_means(rows: Rows, names: Sequence[str], c: int) -> tuple[SegmentStats, Moments, Floats]:
    """Sums over units of how far their rewards and covariates are from a row's mean, by arm.

    The mean of rewards is that of the arm, that of covariates is of all rows, and returned.
    """
    X = np.zeros((len(names), c + 2))  # rows, rewards, covariates
    XX, units = np.zeros((len(names), c + 2, c + 2)), np.zeros(len(names), dtype=np.int64)
    for row in rows:
        k = names.index(row["arm"])
        units[k] += int(row["units"])
        for a in range(c + 2):
            X[k, a] += row[f"x{a}"]
            for b in range(a + 1):
                XX[k, a, b] += row[f"x{a}_{b}"]
                XX[k, b, a] = XX[k, a, b]
    if not np.isfinite(XX).all():
        raise _too_large()
    mean = X[:, 2:].sum(axis=0) / max(X[:, 0].sum(), 1.0)
    found = Moments.empty(1, len(names), c)
    sums, squares = np.zeros((1, len(names))), np.zeros((1, len(names)))
    for k in range(len(names)):
        off = np.zeros((c + 1, c + 2))  # takes sums of a unit to distances from the means
        off[:, 1:] = np.eye(c + 1)
        off[0, 0] = -X[k, 1] / max(X[k, 0], 1.0)
        off[1:, 0] = -mean
        whole = off @ XX[k] @ off.T
        sums[0, k], squares[0, k] = off[0] @ X[k], whole[0, 0]
        found.assigned[0, k] = units[k]
        found.seen[0, k], found.squares[0, k] = off[1:] @ X[k], whole[1:, 1:]
        found.products[0, k] = whole[0, 1:]
    moments = replace(found, totals=found.seen, total_squares=found.squares)
    return SegmentStats(units[None], sums, squares), moments, np.asarray(mean)


def adjusted_tally(tally: Tally, rows: Rows, names: Sequence[str]) -> Tally:
    """The tally of adjusted rewards; rows are the sums that it was made from."""
    J = len(tally.m)
    place = {bucket: j for j, bucket in enumerate(tally.buckets)}
    by_bucket: list[Rows] = [[] for _ in range(J)]
    for row in rows:
        by_bucket[place[row["bucket"]]].append(row)
    stretch = stretches(tally.m.sum(axis=1))
    sums = {name: values.copy() for name, values in tally.sums.items()}
    level, slopes = np.zeros(J), None
    for g in range(int(stretch[-1]) + 1):
        inside = np.flatnonzero(stretch == g).tolist()
        parts = [
            (
                SegmentStats(tally.m[j][None], tally.sums["s"][j][None], tally.sums["ss"][j][None]),
                moments_of(by_bucket[j], names),
            )
            for j in inside
        ]
        whole = _added(moments for _, moments in parts)
        slopes = Slopes.none(1, whole.covariates) if slopes is None else slopes
        beta, centre = slopes.fitted(whole), _mean(whole)
        for j, (stats, moments) in zip(inside, parts, strict=True):
            if not stats.counts.sum():
                continue
            found = adjusted(stats, _around(moments, whole), beta)
            assert found.squares is not None
            sums["s"][j], sums["ss"][j] = found.sums[0], found.squares[0]
            _adjust_weighed(sums, j, by_bucket[j], names, beta[0], centre)
            level[j] = level_variance(moments, beta)[0]
            slopes = slopes.after(stats, moments)
    return replace(tally, sums=sums, level=level)


def _adjust_weighed(
    sums: dict[str, Floats], j: int, rows: Rows, names: Sequence[str], beta: Floats, mean: Floats
) -> None:
    """Sums of r/p, r/p² and r²/p² of a bucket, with r - β'(z - z̄) for r, in place."""
    over = moments_of(rows, names, end="w")
    place = {name: k for k, name in enumerate(names)}
    once = np.zeros(over.seen[0].shape)
    for row in rows:
        once[place[row["arm"]]] += [row[f"z{a}v"] or 0.0 for a in range(beta.size)]
    i1, i2, w2 = sums["i1"][j], sums["i2"][j], sums["w2"][j].copy()
    seen, level = over.seen[0], float(mean @ beta)
    sums["w"][j] -= once @ beta - level * i1
    sums["w2"][j] -= seen @ beta - level * i2
    cross = over.products[0] @ beta - level * w2
    form = over.squares[0] @ beta @ beta - 2 * level * (seen @ beta) + level**2 * i2
    sums["ww"][j] = np.maximum(sums["ww"][j] - 2 * cross + form, 0.0)


def adjusted_pieces(pieces: Sequence[Piece], arms: ArmSet, segments: bool) -> list[Piece]:
    """The pieces with adjusted sums, in their order.

    segments : whether each piece is a segment; else pieces of neighbouring buckets are compared
        with one mean of the covariates, if the arms can all have the same value, which makes that
        unbiased whatever their allocations
    """
    used = [piece for piece in pieces if piece.m.sum()]
    if not used:
        return []
    orders = sorted({piece.order for piece in used})
    place = {order: j for j, order in enumerate(orders)}
    count = np.zeros(len(orders), dtype=np.int64)
    for piece in used:
        count[place[piece.order]] += int(piece.m.sum())
    stretch = np.arange(len(orders)) if segments else stretches(count)
    together = not segments and _level_is_free(arms)
    groups: dict[int, list[Piece]] = {}
    for piece in used:
        groups.setdefault(int(stretch[place[piece.order]]), []).append(piece)
    slopes: Slopes | None = None
    found = []
    for g in sorted(groups):
        parts = [(piece.stats, moments_of(piece.rows, arms.names)) for piece in groups[g]]
        whole = _added(moments for _, moments in parts)
        slopes = Slopes.none(1, whole.covariates) if slopes is None else slopes
        for piece, (stats, moments) in zip(groups[g], parts, strict=True):
            around = whole if together else moments
            beta = slopes.fitted(around)
            new, level = (
                adjusted(stats, _around(moments, around), beta),
                level_variance(moments, beta),
            )
            assert new.squares is not None
            found.append(replace(piece, s=new.sums[0], ss=new.squares[0], level=float(level[0])))
        for stats, moments in parts:
            slopes = slopes.after(stats, moments)
    return found


def _level_is_free(arms: ArmSet) -> bool:
    """Whether some parameter gives every arm the value one."""
    X = arms.coordinates
    ones = np.ones(len(X))
    return bool(np.allclose(X @ np.linalg.lstsq(X, ones, rcond=None)[0], ones, atol=1e-9))


def _added(several: Iterable[Moments]) -> Moments:
    first, *others = several
    for other in others:
        first = first + other
    return first


def _around(moments: Moments, whole: Moments) -> Moments:
    """The same sums, to be compared with the mean of a larger whole."""
    return replace(moments, assigned=whole.assigned, totals=whole.totals)


def _mean(moments: Moments) -> Floats:
    return np.asarray(moments.totals[0].sum(axis=0) / max(int(moments.assigned.sum()), 1))
