"""Covariates of a log: rewards less what slopes, fitted on the other half of the units, explain.

Slopes are fitted on one half of the units and adjust the other half, so that a unit's own variant
and reward do not affect the slope that adjusts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from steadyarm.analysis.query import Floats, Rows
from steadyarm.analysis.source import COVARIATE, Source
from steadyarm.covariates import Moments, Slopes
from steadyarm.errors import InvalidInputError
from steadyarm.segments import SegmentStats


def adjust_rewards(
    log: Source, table: Any, names: Sequence[str], single: bool
) -> tuple[Any, float]:
    """The table with adjusted rewards, and the variance of what all arms share of it.

    Units are numbered in their order; those with even numbers are one half, the others the other.

    Parameters
    ----------
    table : as `query.readable` makes it, with a unit in every row unless each is one (`single`)
    names : the names of the arms
    """
    import ibis

    used = table.filter(table.r.notnull())
    c = sum(name.startswith(COVARIATE) for name in table.columns) + 1
    if single:
        names_of_rows = ("time", "arm", "r", *(f"z{a}" for a in range(c)))
        order = [used[name] for name in names_of_rows]
        used = used.mutate(half=ibis.row_number().over(ibis.window(order_by=order)) % 2)
        terms = {f"x{a + 2}": used[f"z{a}"] for a in range(c)}
        each = used.select("half", "arm", x0=ibis.literal(1), x1=used.r, **terms)
    else:
        units = used.select("unit").distinct()
        place = ibis.row_number().over(ibis.window(order_by=units.unit))
        used = used.join(log.keep("halves of units", units.mutate(half=place % 2)), "unit")
        each = used.group_by("half", "unit", "arm").aggregate(
            x0=used.count().cast("float64"),
            x1=used.r.sum(),
            **{f"x{a + 2}": used[f"z{a}"].sum() for a in range(c)},
        )
    products = {
        f"x{a}_{b}": (each[f"x{a}"] * each[f"x{b}"]).sum().cast("float64")
        for a in range(c + 2)
        for b in range(a + 1)
    }
    rows = log.fetch(
        each.group_by("half", "arm").aggregate(
            units=each.count(),
            **{f"x{a}": each[f"x{a}"].sum().cast("float64") for a in range(c + 2)},
            **products,
        )
    )
    fitted, level = fit_halves(rows, names, c)
    change = ibis.literal(0.0)
    for h, (beta, mean) in enumerate(fitted):
        off = ibis.literal(0.0)
        for a in range(c):
            off = off + float(beta[a]) * (used[f"z{a}"] - float(mean[a]))
        change = ibis.ifelse(used.half == h, off, change)
    return used.mutate(r=used.r - change).drop("half"), level


def fit_halves(
    rows: Rows, names: Sequence[str], c: int
) -> tuple[list[tuple[Floats, Floats]], float]:
    """For each half the slopes (c,) of the other one, and the mean of its covariates.

    Also returns the variance of what all arms share of the adjustment.

    rows : by half and arm, sums over units of x0 (rows), x1 (rewards), x2, … (covariates) and of
        their products
    """
    parts = [_around_means([row for row in rows if row["half"] == h], names, c) for h in (0, 1)]
    fitted, level = [], 0.0
    for h, (_, moments, mean) in enumerate(parts):
        stats, others, _ = parts[1 - h]
        beta = Slopes.none(1, c).after(stats, others).fit(moments)[0]
        fitted.append((beta, mean))
        level += float(beta @ moments.squares[0].sum(axis=0) @ beta)
    return fitted, level


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
        raise InvalidInputError(
            "a covariate has values that are infinite or too large; correct them, or leave the "
            "covariate out.",
            field="covariates",
        )
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
