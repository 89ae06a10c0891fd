"""Attributes: what is known of a unit when it is assigned, such as the kind of its device.

An attribute has a few levels, all declared beforehand. To a storage a level is one more metric,
whose value is 1 for every assignment of that level: its sums count the visits of the level, and
its products with the reward add up what these visits brought. Attributes never steer anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from steadyarm.errors import InvalidInputError
from steadyarm.live.metrics import REWARD, check_name
from steadyarm.storages.series import COVARIATE
from steadyarm.wording import did_you_mean, shortened

Declared = Mapping[str, tuple[str, ...]]  # levels by attribute
Given = Mapping[str, str | None]  # of one unit: its level by attribute, None if it is not known

ROLE = "attribute"  # of a level among the metrics of a stored config
OTHER = "other"  # the level of units whose own was not declared
MOST = 8  # attributes
FEWEST, MOST_LEVELS = 2, 20
LONGEST = 64  # characters of a level


def checked_attributes(given: Any) -> dict[str, tuple[str, ...]]:
    """Declared attributes, if they can be kept.

    Examples
    --------
    >>> checked_attributes({"device": ["mobile", "desktop"]})
    {'device': ('mobile', 'desktop')}
    """
    if not isinstance(given, Mapping):
        expected = 'levels by attribute, such as {"device": ["mobile", "desktop"]}'
        raise InvalidInputError.of("attributes", given, expected)
    if len(given) > MOST:
        raise InvalidInputError(
            f"there are {len(given)} attributes; expected at most {MOST}, since every further one "
            "widens the doubt about what is found.",
            field="attributes",
        )
    return {
        check_name(name, "an attribute", "attributes"): _checked_levels(name, given[name])
        for name in given
    }


def _checked_levels(name: str, given: Any) -> tuple[str, ...]:
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
                f"{what} include {level!r} twice; give each once.", field="attributes"
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
        f"{shortened(attribute)} is no attribute of this experiment; {expected}"
        f"{did_you_mean(str(attribute), known)}",
        field="attributes",
    )


def series_of(attribute: str, level: str) -> str:
    """How storages call a level."""
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


def check_as_many(units: Sequence[Any], given: Sequence[Any] | None, what: str) -> None:
    """Refuse lists of what is known of units that are longer or shorter than that of the units.

    what : "attributes" or "covariates"
    """
    if given is not None and len(given) != len(units):
        raise InvalidInputError(
            f"there are {what} of {len(given)} units, but {len(units)} units; give as many, "
            "with None for units of which nothing is known.",
            field=what,
        )


def stored_levels(declared: Declared) -> tuple[list[dict[str, Any]], list[list[str]]]:
    """All levels as entries of a config: among its metrics, and among its products."""
    names = [series_of(name, level) for name in declared for level in levels_of(declared, name)]
    usual = {"role": ROLE, "several": "first", "window": None, "grace": None, "cap": None}
    return [{"name": name} | usual for name in names], [[name, REWARD] for name in names]


def without_known(metrics: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The metrics of a config without what is known of units: levels and covariates."""
    return [metric for metric in metrics if metric.get("role") not in (ROLE, COVARIATE)]
