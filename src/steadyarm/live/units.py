"""Units: their attributes and covariates, which are known when they are assigned.

An attribute, such as the kind of a device, has a few levels, all declared beforehand. A storage
stores a level as one more metric, whose value is 1 for every assignment of that level: its sums
count the visits of the level, and its products with the reward are the rewards of these visits.
Attributes never change the allocation.

A covariate is a number. A storage stores it as one more metric (see `storages.counting`), whose
events are refused once the policy has observed their segment, since decisions rest on it.
`moments_in` computes moments from the stored sums, and `steadyarm.covariates` uses them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from steadyarm.covariates import Moments, covariate_row
from steadyarm.errors import InvalidInputError
from steadyarm.live.metrics import REWARD, check_name
from steadyarm.storages.counting import COVARIATE, REWARDED
from steadyarm.storages.records import SeriesSums, Tally
from steadyarm.wording import did_you_mean, shortened

Declared = Mapping[str, tuple[str, ...]]  # levels by attribute
Given = Mapping[str, str | None]  # of one unit: its level by attribute, None if it is not known

ROLE = "attribute"  # of a level among the metrics of a stored config
OTHER = "other"  # the level of units whose own was not declared
MOST = 8  # attributes
FEWEST, MOST_LEVELS = 2, 20
LONGEST = 64  # characters of a level


def validate_attributes(given: Any) -> dict[str, tuple[str, ...]]:
    """Declared attributes, if they can be kept.

    Examples
    --------
    >>> validate_attributes({"device": ["mobile", "desktop"]})
    {'device': ('mobile', 'desktop')}
    """
    if not isinstance(given, Mapping):
        expected = 'levels by attribute, such as {"device": ["mobile", "desktop"]}'
        raise InvalidInputError.of("attributes", given, expected)
    if len(given) > MOST:
        raise InvalidInputError(
            f"there are {len(given)} attributes; expected at most {MOST}.",
            field="attributes",
        )
    return {
        check_name(name, "an attribute", "attributes"): _validate_levels(name, given[name])
        for name in given
    }


def _validate_levels(name: str, given: Any) -> tuple[str, ...]:
    levels = tuple(given) if isinstance(given, (list, tuple)) else ()
    what = f"the levels of the attribute {name!r}"
    if not FEWEST <= len(levels) <= MOST_LEVELS:
        raise InvalidInputError(
            f"{what} are {shortened(given)}; expected a list of {FEWEST} to {MOST_LEVELS} texts.",
            field="attributes",
        )
    for level in levels:
        good = isinstance(level, str) and level == level.strip() and 0 < len(level) <= LONGEST
        if not good or "=" in level or "*" in level or not level.isprintable():
            raise InvalidInputError(
                f"{what} include {shortened(level)}; expected texts of up to {LONGEST} characters "
                'without "=" and "*", and without space at their ends.',
                field="attributes",
            )
        if levels.count(level) > 1:
            raise InvalidInputError(
                f"{what} contain {level!r} twice; give each once.", field="attributes"
            )
    return levels


def levels_of(declared: Declared, attribute: str) -> tuple[str, ...]:
    """All levels that units may have: those declared, and "other"."""
    levels = declared[attribute]
    return levels if OTHER in levels else (*levels, OTHER)


def check_attribute(declared: Declared, attribute: Any) -> str:
    """Return the name of an attribute, if it was declared."""
    if isinstance(attribute, str) and attribute in declared:
        return attribute
    known = tuple(declared)
    expected = (
        "no attributes were declared; create the experiment with attributes, or give numbers that "
        "were declared as covariates by covariates={…}"
    )
    if known:
        expected = f"the attributes are {', '.join(known)}"
    raise InvalidInputError(
        f"{shortened(attribute)} is not an attribute of this experiment; "
        f"{expected}{did_you_mean(str(attribute), known)}",
        field="attributes",
    )


def series_of(attribute: str, level: str) -> str:
    """The name of a level in storages."""
    return f"{attribute}={level}"


def levels_in(declared: Declared, given: Any) -> tuple[str, ...]:
    """The levels of one unit, as storages call them; an undeclared level is "other".

    given : the unit's level by attribute; attributes that are left out, or None, are not known

    Examples
    --------
    >>> declared = {"device": ("mobile", "desktop"), "country": ("FR", "DE")}
    >>> levels_in(declared, {"device": "watch", "country": None})
    ('device=other',)
    """
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        expected = 'the levels of a unit by attribute, such as {"device": "mobile"}'
        raise InvalidInputError.of("attributes", given, expected)
    found = []
    for name, level in given.items():
        check_attribute(declared, name)
        if level is None:
            continue
        if not isinstance(level, str):
            expected = f"a text such as {declared[name][0]!r}"
            error = InvalidInputError.of(f"the attribute {name!r}", level, expected)
            error.field = "attributes"
            raise error
        found.append(series_of(name, level if level in declared[name] else OTHER))
    return tuple(found)


def encode_levels(declared: Declared) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """All levels as entries of a config: among its metrics, and among its products."""
    names = [series_of(name, level) for name in declared for level in levels_of(declared, name)]
    usual = {"role": ROLE, "several": "first", "window": None, "grace": None, "cap": None}
    return [{"name": name} | usual for name in names], [[name, REWARD] for name in names]


def without_known(metrics: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The metrics of a config without what is known of units: levels and covariates."""
    return [metric for metric in metrics if metric.get("role") not in (ROLE, COVARIATE)]


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
                f"{name!r} is the name of a covariate and of a metric or an attribute; rename one.",
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


def encode_covariates(
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
    series : series of this segment, or of one of its days
    tally : the tally of the same visits
    given_up : no reward may come any more
    """
    everything = missing == "zero"
    if everything and tally.waiting and not given_up:
        return None
    sums: dict[str, Any] = {}
    for part in series:
        more = np.array([part.rewarded, part.sums, part.squares], dtype=object)
        sums[part.series] = sums[part.series] + more if part.series in sums else more
    moments = Moments.empty(1, len(tally.assigned), 1 + len(names))
    moments.assigned[0] = np.subtract(tally.assigned, tally.excluded)
    nothing = np.zeros((3, len(tally.assigned)))

    def of(what: int, *factors: str) -> Any:
        """(m,) of a series: its number of values, their sum or that of their squares."""
        return sums.get("*".join(factors), nothing)[what].astype(np.float64)

    totals, seen = moments.totals[0], moments.seen[0]  # (m, c) each
    all_squares, squares = moments.total_squares[0], moments.squares[0]  # (m, c, c) each
    totals[:, 0] = all_squares[:, 0, 0] = of(NUMBER, KNOWN)
    seen[:, 0] = squares[:, 0, 0] = of(NUMBER, KNOWN, REWARD)
    moments.products[0, :, 0] = of(SUM, KNOWN, REWARD)
    for a, name in enumerate(names, start=1):
        totals[:, a], all_squares[:, a, a] = of(SUM, name), of(SQUARES, name)
        seen[:, a], squares[:, a, a] = of(SUM, name, REWARDED), of(SQUARES, name, REWARDED)
        moments.products[0, :, a] = of(SUM, name, REWARD)
        for whole, wholes in ((totals, all_squares), (seen, squares)):
            wholes[:, 0, a] = wholes[:, a, 0] = whole[:, a]  # a product with 1
        for b, other in enumerate(names[a:], start=a + 1):
            all_squares[:, a, b] = all_squares[:, b, a] = of(SUM, name, other)
            squares[:, a, b] = squares[:, b, a] = of(SUM, name, other, REWARDED)
    if everything:
        seen[:], squares[:] = totals, all_squares
    return moments
