"""Splits: fixed shares of the variants, in place of a log's column of probabilities.

Most tests that ran elsewhere drew variants with shares that somebody chose, and logged who saw
what but not the shares. Given as a split, they are the whole allocation of every row. And since
shares were chosen without a look at rewards, the rows of a variant count as a random part of all
rows of their time, of the size that was seen: estimates are differences of plain means within
stretches of time, with Neyman's variance (`units.randomised_evidence`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.query import as_time
from steadyarm.analysis.source import Source, nearest_column
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.inference.health import Finding
from steadyarm.wording import counted, did_you_mean, shortened, strung

EQUAL = "equal"
SUM_TO_ONE = 1e-6
FORMS = (
    'expected "equal", shares such as {"A": 0.5, "B": 0.5} or "A=0.5,B=0.5", or a list of these '
    'with the time from which each holds, such as ["equal", "2026-03-08: A=0.9,B=0.1"]'
)
FROM = re.compile(  # what begins a split that holds from some time on
    r"\s*(?P<time>\d{4}-\d{2}-\d{2}(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?"
    r"(?:Z|[-+]\d{2}:?\d{2})?|\d+(?:\.\d+)?)\s*:\s*(?P<shares>.*)",
    re.DOTALL,
)
Floats = NDArray[np.float64]
Shares = Mapping[str, float]


@dataclass(frozen=True)
class Period:
    """Shares that held from some time on.

    Attributes
    ----------
    since : a time in UTC, or a number if the log's times are numbers; None for the first
    shares : of every variant; None if all were equal
    """

    since: datetime | float | None
    shares: Shares | None

    @property
    def text(self) -> str:
        """The shares in words."""
        if self.shares is None:
            return "equal shares"
        return "shares " + strung([f"{name} {share:.4g}" for name, share in self.shares.items()], 8)

    @property
    def start(self) -> str:
        """Since when, in words."""
        if isinstance(self.since, datetime):
            return self.since.isoformat(" ", "minutes").removesuffix(" 00:00")
        return f"{self.since:g}"


@dataclass(frozen=True)
class Split:
    """The shares with which variants were drawn, in order of time."""

    periods: tuple[Period, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the variants, as far as shares name them."""
        return next((tuple(one.shares) for one in self.periods if one.shares is not None), ())

    @property
    def note(self) -> str:
        """How variants were drawn, in a sentence."""
        said = [f"{one.text} from {one.start} on" for one in self.periods[1:]]
        whole = ", ".join([self.periods[0].text, *said])
        return f"Variants were drawn with {whole}, as given."

    def allocations(self, arms: ArmSet) -> dict[str, Floats]:
        """(K,) the allocation of each period, by what stands in the column probabilities."""
        found = {}
        for place, period in enumerate(self.periods):
            weights = np.ones(arms.size)
            if period.shares is not None:
                weights = np.array([period.shares[name] for name in arms.names])
            found[f"split {place}"] = weights / weights.sum()
        return found

    def to_list(self, arms: ArmSet) -> list[dict[str, Any]]:
        """Plain values: since when, and the share of every variant."""
        return [
            {
                "since": None if one.since is None else one.start,
                "shares": dict(zip(arms.names, weights.tolist(), strict=True)),
            }
            for one, weights in zip(self.periods, self.allocations(arms).values(), strict=True)
        ]


# What was given.


def validate_split(given: Any) -> Split | None:
    """The split that was given in any of its forms.

    Examples
    --------
    >>> validate_split("A=1/3,B=2/3").names
    ('A', 'B')
    >>> validate_split(["equal", "2026-03-08: A=0.9,B=0.1"]).note
    'Variants were drawn with equal shares, shares A 0.9, B 0.1 from 2026-03-08 on, as given.'
    """
    if given is None:
        return None
    entries = list(given) if isinstance(given, (list, tuple)) else [given]
    if not entries:
        raise InvalidInputError(f"the split is empty; {FORMS}.", field="split")
    periods = [_period(entry) for entry in entries]
    _check_times(periods)
    named = [one.shares for one in periods if one.shares is not None]
    for shares in named[1:]:
        if other := sorted(set(shares) ^ set(named[0])):
            raise InvalidInputError(
                f"the splits do not name the same arms: {strung(list(map(repr, other)), 8)}. Give "
                "every arm a share above 0 in each, or leave times without it out with a query.",
                field="split",
            )
    return Split(tuple(periods))


def _period(entry: Any) -> Period:
    since: Any = None
    if isinstance(entry, (list, tuple)):
        if len(entry) != 2:
            raise InvalidInputError(f"the split has {shortened(entry)}; {FORMS}.", field="split")
        since, entry = entry
    elif isinstance(entry, str) and (found := FROM.fullmatch(entry)):
        since, entry = found["time"], found["shares"]
    return Period(_time(since), _shares(entry))


def _shares(given: Any) -> Shares | None:
    """The shares that were given as a mapping or as text; None for equal ones."""
    if isinstance(given, str):
        text = given.strip()
        if text.lower() == EQUAL:
            return None
        given = _read(text)
    if not isinstance(given, Mapping) or not given:
        raise InvalidInputError(f"the split is {shortened(given)}; {FORMS}.", field="split")
    named = {_name(name): value for name, value in given.items()}
    shares = {name: _share(name, value) for name, value in named.items()}
    if len(shares) < 2:
        raise InvalidInputError(
            f"the split names {strung(list(shares))} alone; name every arm of the log.",
            field="split",
        )
    total = math.fsum(shares.values())
    if abs(total - 1) > SUM_TO_ONE:
        advice = "write 1/3 for a third"
        if abs(total - 100) < 1:
            advice = "write 0.5 for 50 %"
        raise InvalidInputError(
            f"the shares {_listing(shares)} add up to {total:.6g}; expected 1 ({advice}). Name "
            "every arm, also those that are not compared.",
            field="split",
        )
    return shares


def _read(text: str) -> dict[str, Any]:
    """Shares from text such as A=0.5,B=0.5."""
    shares: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, share = part.rpartition("=")
        name = name.strip()
        if not equals or not name:
            raise InvalidInputError(
                f"the split {shortened(text)} has {part.strip()!r}; {FORMS}.",
                field="split",
            )
        if name in shares:
            raise InvalidInputError(f"the split names {name!r} twice.", field="split")
        shares[name] = share.strip()
    return shares


def _name(given: Any) -> str:
    """The name of an arm as databases write it."""
    return str(given).lower() if isinstance(given, (bool, np.bool_)) else str(given)


def _share(name: str, value: Any) -> float:
    try:
        share = float(Fraction(value) if isinstance(value, str) else value)
    except (TypeError, ValueError, ZeroDivisionError):
        share = math.nan
    if isinstance(value, bool) or not share > 0 or math.isinf(share):
        raise InvalidInputError(
            f"the share of {name!r} is {value!r}; expected a number above 0, such as 0.5 or 1/3.",
            field="split",
        )
    return share


def _listing(shares: Shares) -> str:
    return strung([f"{name}={share:g}" for name, share in shares.items()], 8)


def _time(given: Any) -> datetime | float | None:
    """A time in UTC without a zone, as times of logs are compared, or a number."""
    if given is None or (isinstance(given, (int, float)) and not isinstance(given, bool)):
        return given
    found = given
    if isinstance(given, str):
        try:
            found = datetime.fromisoformat(given)
        except ValueError:
            try:
                return float(given)
            except ValueError:
                found = None
    elif isinstance(given, date) and not isinstance(given, datetime):
        found = datetime(given.year, given.month, given.day)
    if not isinstance(found, datetime):
        raise InvalidInputError(
            f"the split holds from {shortened(given)} on; expected a time such as 2026-03-08.",
            field="split",
        )
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _check_times(periods: Sequence[Period]) -> None:
    first, *later = periods
    if first.since is not None:
        raise InvalidInputError(
            f"the first split holds from {first.start} on; give the one for the time before first, "
            "without a time.",
            field="split",
        )
    before = None
    for one in later:
        kinds = {type(at) is datetime for at in (before, one.since) if at is not None}
        if one.since is None or len(kinds) > 1 or (before is not None and one.since <= before):  # type: ignore[operator]
            raise InvalidInputError(
                "splits after the first need the time from which they hold, each later than the "
                f"one before; {FORMS}.",
                field="split",
            )
        before = one.since


# From the split to a log with allocations.


def with_split(log: Source, split: Split | None) -> Source:
    """The log with the split's period of each row in a column `probabilities`, if there is one."""
    has = [name for name in ("probability", "probabilities") if log.has(name)]
    if split is None:
        if has:
            return log
        raise _no_probability(log)
    if has:
        theirs = log.their(has[0])
        raise InvalidInputError(
            f"a split is given, but {log.name} has the column {theirs} with probabilities of its "
            "own; leave the split out, or leave the column out with a query: "
            f'"select * exclude ({theirs}) from log".',
            field="split",
        )
    dated = [one.since for one in split.periods if one.since is not None]
    time = as_time(log, log.table["timestamp"])
    if dated and time.type().is_numeric() != (not isinstance(dated[0], datetime)):
        kind = "numbers" if time.type().is_numeric() else "times"
        raise InvalidInputError(
            f"the split holds from {split.periods[1].start} on, but the time stamps of {log.name} "
            f"are {kind}; give the split alike.",
            field="split",
        )
    # what other logs have in this column is not known, and nothing is needed of it
    table = log.table.drop("segment") if log.has("segment") else log.table
    return replace(log, table=table.mutate(probabilities=_place(time, split)))


def _place(time: Any, split: Split) -> Any:
    """Which period of the split a row belongs to."""
    import ibis

    first = ibis.literal("split 0")
    later = list(enumerate(split.periods))[:0:-1]
    cases = [(time >= ibis.literal(one.since), f"split {place}") for place, one in later]
    return ibis.cases(*cases, else_=first) if cases else first


def own_probability(table: Any, split: Split, arms: ArmSet) -> Any:
    """A column with the probability of each row's own arm."""
    import ibis

    cases = [
        ((table.probabilities == place) & (table.arm == name), float(share))
        for place, shares in split.allocations(arms).items()
        for name, share in zip(arms.names, shares, strict=True)
    ]
    return ibis.cases(*cases, else_=ibis.null("float64"))


def _no_probability(log: Source) -> InvalidInputError:
    near = nearest_column("probability", "probability", log.there) or "NAME"
    return InvalidInputError(
        f"{log.name} has no column probability; its columns are {strung(log.there, 40)}. Map it "
        f'(--column probability={near}, in Python columns={{"probability": "{near}"}}), or give '
        'the fixed shares of the arms: --split equal, in Python split="equal".',
        field="split",
    )


def check_arms(log: Source, split: Split, counts: Mapping[str, int]) -> None:
    """Refuse a log with arms that the split does not name; `counts` are rows by arm."""
    names = split.names
    others = {name: count for name, count in counts.items() if name not in names}
    if not names or not others:
        return
    most = max(others, key=lambda name: others[name])
    each = [f"{name!r} ({counted(count, 'row')})" for name, count in sorted(others.items())]
    raise InvalidInputError(
        f"{log.name} has {strung(each, 8)}, which the split does not name; it names "
        f"{strung(list(map(repr, names)), 8)}{did_you_mean(most, names)}",
        field="split",
    )


def against_split(findings: Sequence[Finding]) -> list[Finding]:
    """Findings on assignments in the words of a split."""
    found = []
    for one in findings:
        text = one.explanation.replace("the logged probabilities", "the split")
        advice = one.advice
        if one.name == "assignments" and one.status != "ok":
            advice = f"Make sure that the split is the one that was used. {advice}"
        found.append(replace(one, explanation=text, advice=advice))
    return found
