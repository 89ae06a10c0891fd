"""Sums of a log by period and arm: one Ibis expression, which runs where the log lives.

Rows of equal probability are added up first, in numbers that need no division; the weighing by
1/p is done on the few rows that are left. Logs of ever-changing probabilities are weighed row by
row instead.
"""

from __future__ import annotations

from typing import Any

__all__ = ["FEW", "SAMPLE", "allocation_sums", "propensity_sums"]

SAMPLE, FEW = 50_000, 2_000  # rows looked at, and distinct probabilities that are few among them


def propensity_sums(
    table: Any, bucket: Any, few: bool, span: tuple[float, float] | None = None
) -> Any:
    """Sums by bucket and arm, each row weighed by one over its own probability.

    Parameters
    ----------
    table : as `readable` makes it; with a column given where rewards may be unreadable
    bucket : the fine period of a row
    few : whether there are few distinct probabilities
    span : rewards that can occur

    Returns
    -------
    Per bucket and arm: rows n and with reward m, sums s of r and ss of r²; over all rows i0 and
    i02 of 1/p and 1/p²; over rows with reward i1 and i2 of the same, w and w2 of r/p and r/p²,
    ww of r²/p²; the least p, rows without a usable p, rewards given, and those beyond the span.
    """
    keys = {"bucket": bucket, "arm": table.arm}
    if few:
        return _weighed(table.group_by(**keys, p=table.p).aggregate(**_counts(table, span)))
    p, r = _usable(table.p), table.r
    there = r.notnull()
    return table.group_by(**keys).aggregate(
        **_counts(table, span),
        i0=(1 / p).sum(),
        i02=(1 / (p * p)).sum(),
        i1=(1 / p).sum(where=there),
        i2=(1 / (p * p)).sum(where=there),
        w=(r / p).sum(),
        w2=(r / (p * p)).sum(),
        ww=(r * r / (p * p)).sum(),
        least=p.min(),
        unusable=table.count() - p.count(),
    )


def allocation_sums(
    table: Any, keys: dict[str, Any], span: tuple[float, float] | None = None
) -> Any:
    """Counts and sums by the given keys, with the time of the first row and the range of p."""
    more: dict[str, Any] = {"first": table.time.min()}
    if "p" in table.columns:
        p = _usable(table.p)
        unusable = table.count() - p.count()
        more |= {"least": p.min(), "largest": p.max(), "unusable": unusable}
    return table.group_by(**keys).aggregate(**_counts(table, span), **more)


def _counts(table: Any, span: tuple[float, float] | None) -> dict[str, Any]:
    """What is added up without weighing."""
    r = table.r
    sums = {"n": table.count(), "m": r.count(), "s": r.sum(), "ss": (r * r).sum()}
    if "given" in table.columns:
        sums["given"] = table.given.count()
    if span is not None:
        sums["beyond"] = ((r < span[0]) | (r > span[1])).sum()
    return sums


def _weighed(c: Any) -> Any:
    """The same by bucket and arm, from counts by bucket, arm and probability."""
    p = _usable(c.p)
    plain = {name: c[name].sum() for name in c.columns if name not in ("bucket", "arm", "p")}
    return c.group_by("bucket", "arm").aggregate(
        **plain,
        i0=(c.n / p).sum(),
        i02=(c.n / (p * p)).sum(),
        i1=(c.m / p).sum(),
        i2=(c.m / (p * p)).sum(),
        w=(c.s / p).sum(),
        w2=(c.s / (p * p)).sum(),
        ww=(c.ss / (p * p)).sum(),
        least=p.min(),
        unusable=c.n.sum(where=p.isnull()),
    )


def _usable(p: Any) -> Any:
    """The probability, null where it is none, so that no database divides by zero."""
    import ibis

    return ibis.ifelse((p > 0) & (p <= 1), p, ibis.null("float64"))
