"""Covariates of a live test: numbers that are known of a unit before it is assigned.

To a storage a covariate is one more metric (see `storages.series`), whose events are refused once
the policy has observed their segment, since decisions rest on it. `steadyarm.covariates` says what
is done with the sums; `moments_in` makes them from what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from steadyarm.covariates import Moments, covariate_row
from steadyarm.errors import InvalidInputError
from steadyarm.live.metrics import REWARD, check_name
from steadyarm.storages.records import SeriesSums, Tally
from steadyarm.storages.series import COVARIATE, REWARDED

Covariates = Mapping[str, float | None]  # of one unit, by name; None if it is not known

NUMBER, SUM, SQUARES = range(3)  # what a series has
KNOWN = "known?"  # 1 for units of which any covariate is known; no declared name has such a mark


def check_names(names: Iterable[str], taken: Collection[str]) -> None:
    """Refuse names of covariates that storages cannot keep, or that something else has.

    taken : names of metrics and attributes
    """
    for name in names:
        check_name(name, "a covariate", "covariates")
        if name == REWARD or name in taken:
            raise InvalidInputError(
                f"a covariate is called {name!r}, as a metric or an attribute is; choose another "
                "name.",
                field="covariates",
            )


def values_in(declared: Sequence[str], given: Any) -> dict[str, float]:
    """The covariates of one unit as storages keep them; empty if none is known.

    given : the unit's numbers by covariate; those that are left out, or None, are not known

    Examples
    --------
    >>> values_in(("visits", "spend"), {"spend": 41, "visits": None})
    {'spend': 41.0, 'known?': 1.0}
    """
    if given is None:
        return {}
    try:
        row = covariate_row(tuple(declared), given)
    except InvalidInputError as error:
        error.field = "covariates"
        raise
    values = dict(zip(declared, row[1:].tolist(), strict=True))
    found = {name: values[name] for name, value in given.items() if value is not None}
    return found | {KNOWN: 1.0} if found else {}


def stored_covariates(
    names: Sequence[str], missing: str
) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """Covariates as entries of a config: among its metrics, and among its products.

    With z the covariates of a unit, "known?" first, and r its reward, sums of z, zz' and zr are
    needed by arm and segment. A series has its squares, too. What is not known counts as 0, and a
    product with "known?" is the other factor itself, so these series are enough:

    - each covariate and "known?", and each pair of covariates: z and zz' of all visits
    - each of them times the reward: zr; its number of values is that of visits with both
    - each covariate, and each pair, times "reward?": z and zz' of visits with a reward. Where a
      missing reward counts as zero all visits count, and these are left out

    missing : as in `Settings`
    """
    if not names:
        return [], []
    usual = {"role": COVARIATE, "several": "first", "window": None, "grace": None, "cap": None}
    pairs = [list(pair) for pair in combinations(names, 2)]
    products = [*pairs, *([name, REWARD] for name in (*names, KNOWN))]
    if missing != "zero":
        products += [[*factors, REWARDED] for factors in ([[name] for name in names] + pairs)]
    return [{"name": name} | usual for name in (*names, KNOWN)], products


def moments_in(
    names: Sequence[str], missing: str, series: Iterable[SeriesSums], tally: Tally, given_up: bool
) -> Moments | None:
    """The sums of covariates of a segment, or of one of its days, each rounded once.

    None where missing rewards count as zero and may still come: which visits are to count is
    not known yet.

    names : declared; missing : as in `Settings`
    series : of this segment, or of this day of it
    tally : of the same visits
    given_up : no reward may come any more
    """
    everything = missing == "zero"
    if everything and tally.waiting and not given_up:
        return None
    sums: dict[str, Any] = {}
    for part in series:
        more = np.array([part.rewarded, part.sums, part.squares], dtype=object)
        sums[part.series] = sums[part.series] + more if part.series in sums else more
    found = Moments.empty(1, len(tally.assigned), 1 + len(names))
    found.assigned[0] = np.subtract(tally.assigned, tally.excluded)
    nothing = np.zeros((3, len(tally.assigned)))

    def of(what: int, *factors: str) -> Any:
        """(m,) of a series: its number of values, their sum or that of their squares."""
        return sums.get("*".join(factors), nothing)[what].astype(np.float64)

    totals, seen = found.totals[0], found.seen[0]  # (m, c) each
    all_squares, squares = found.total_squares[0], found.squares[0]  # (m, c, c) each
    totals[:, 0] = all_squares[:, 0, 0] = of(NUMBER, KNOWN)
    seen[:, 0] = squares[:, 0, 0] = of(NUMBER, KNOWN, REWARD)
    found.products[0, :, 0] = of(SUM, KNOWN, REWARD)
    for a, name in enumerate(names, start=1):
        totals[:, a], all_squares[:, a, a] = of(SUM, name), of(SQUARES, name)
        seen[:, a], squares[:, a, a] = of(SUM, name, REWARDED), of(SQUARES, name, REWARDED)
        found.products[0, :, a] = of(SUM, name, REWARD)
        for whole, wholes in ((totals, all_squares), (seen, squares)):
            wholes[:, 0, a] = wholes[:, a, 0] = whole[:, a]  # a product with 1
        for b, other in enumerate(names[a:], start=a + 1):
            all_squares[:, a, b] = all_squares[:, b, a] = of(SUM, name, other)
            squares[:, a, b] = squares[:, b, a] = of(SUM, name, other, REWARDED)
    if everything:
        seen[:], squares[:] = totals, all_squares
    return found
