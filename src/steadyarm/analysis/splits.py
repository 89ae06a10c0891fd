"""Splits: fixed shares of the variants, in place of a log's column of probabilities.

Most tests that ran elsewhere drew variants with shares that somebody chose, and logged who saw
what but not the shares. Given as a split, they are the whole allocation of every row. And since
shares were chosen without a look at rewards, the rows of a variant count as a random part of all
rows of their time, of the size that was seen: estimates are differences of plain means within
stretches of time, with Neyman's variance.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.analysis.allocations import SUM_TO_ONE, Piece
from steadyarm.analysis.log import Log, nearest_column
from steadyarm.analysis.sums import as_time
from steadyarm.arms import ArmSet
from steadyarm.errors import InvalidInputError
from steadyarm.estimators import is_one_hot
from steadyarm.inference.health import Finding
from steadyarm.wording import counted, did_you_mean, listed, shortened, strung

EQUAL = "equal"
LEAST = 200  # rewards of every variant in a stretch of time: few enough would cost precision
FORMS = (
    'expected "equal", shares such as {"A": 0.5, "B": 0.3, "C": 0.2}, or a list of both with the '
    'time from which each holds, such as [(None, "equal"), ("2026-03-08", {"A": 0.9, "B": 0.1})]; '
    "on the command line --split equal, --split A=0.5,B=0.3,C=0.2 and, for shares that changed, a "
    'further --split "2026-03-08: A=0.9,B=0.1"'
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


def checked_split(given: Any) -> Split | None:
    """The split that was given in any of its forms.

    Examples
    --------
    >>> checked_split("A=1/3,B=2/3").names
    ('A', 'B')
    >>> checked_split(["equal", "2026-03-08: A=0.9,B=0.1"]).note
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
                f"the splits do not name the same arms: {strung(list(map(repr, other)), 8)} "
                f"{'is' if len(other) == 1 else 'are'} in one but not in another. Give every arm "
                "a share above 0 in each; a time in which an arm could not be shown says nothing "
                "of it: leave it out with a query.",
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
            f"the split names {listed(tuple(shares))} alone; name every arm of the log, at least "
            "two.",
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
    """Shares from text such as A=0.5,B=0.5, or from JSON."""
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise InvalidInputError(
                f"the split {shortened(text)} is no JSON: {error}.", field="split"
            ) from None
        return dict(found)
    shares: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, share = part.rpartition("=")
        name = name.strip()
        if not equals or not name:
            raise InvalidInputError(
                f"the split {shortened(text)} has {part.strip()!r}, which is not of the form "
                f"ARM=SHARE; {FORMS}. Names with commas can be given as JSON: "
                '--split \'{"a, b": 0.5, "c": 0.5}\'.',
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
            f"the share of {name!r} is {value!r}; expected a number above 0, such as 0.5 or 1/3. "
            "An arm that nobody could get cannot be compared: leave it out.",
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
    if isinstance(given, np.datetime64):
        found = given.astype("datetime64[us]").item()
    elif isinstance(given, str):
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
            f"the split holds from {shortened(given)} on; expected a time such as 2026-03-08 or "
            "2026-03-08T12:00:00Z.",
            field="split",
        )
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _check_times(periods: Sequence[Period]) -> None:
    first, *later = periods
    if first.since is not None:
        raise InvalidInputError(
            f"the first split holds from {first.start} on, and none is given for the time before; "
            'give that one first, without a time: --split equal --split "2026-03-08: A=0.9,B=0.1". '
            "Rows before it can be left out with a query.",
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


def with_split(log: Log, split: Split | None) -> Log:
    """The log with its allocations: the split's in a column probabilities, or those that it has."""
    has = [name for name in ("probability", "probabilities") if log.has(name)]
    if split is None:
        if has or log.vector:
            return log
        raise _no_probability(log)
    if has:
        raise InvalidInputError(
            f"a split is given, but {log.name} has the column {log.their(has[0])} with "
            "probabilities of its own; only one of them can be true. Leave the split out, or leave "
            f'the column out with a query: --query "select * exclude ({log.their(has[0])}) from '
            'log".',
            field="split",
        )
    dated = [one.since for one in split.periods if one.since is not None]
    time = as_time(log, log.table["timestamp"]).type()
    if dated and time.is_numeric() != (not isinstance(dated[0], datetime)):
        raise InvalidInputError(
            f"the split holds from {split.periods[1].start} on, but the time stamps of {log.name} "
            f"are {'numbers' if time.is_numeric() else 'times'}; give the split alike.",
            field="split",
        )

    def drawn(table: Any) -> Any:
        # what other logs have in these columns is not known, and nothing is needed of it
        table = table.drop(*({*log.vector, "segment", "block"} & set(table.columns)))
        return table.mutate(probabilities=_column(log, table, split))

    parts = tuple(replace(part, table=drawn(part.table)) for part in log.parts)
    return replace(log, table=drawn(log.table), parts=parts)


def own_probability(table: Any, split: Split, arms: ArmSet) -> Any:
    """A column with the probability of each row's own arm."""
    import ibis

    cases = [
        ((table.probabilities == place) & (table.arm == name), float(share))
        for place, shares in split.allocations(arms).items()
        for name, share in zip(arms.names, shares, strict=True)
    ]
    return ibis.cases(*cases, else_=ibis.null("float64"))


def _no_probability(log: Log) -> InvalidInputError:
    near = nearest_column("probability", "probability", log.there)
    other = f"is called {near}" if near else "has another name"
    name = near or "NAME"
    return InvalidInputError(
        f"{log.name} has no column probability; its columns are {strung(log.there, 40)}. The "
        "probability with which each row's arm was drawn is needed. If arms were drawn with "
        "fixed shares, say so: --split equal or --split A=0.5,B=0.3,C=0.2 (in Python "
        f'split="equal"). If the column {other}, map it: --column probability={name} '
        f'(columns={{"probability": "{name}"}}).',
        field="split",
    )


def _column(log: Log, table: Any, split: Split) -> Any:
    """Which period of the split a row belongs to."""
    import ibis

    first = ibis.literal("split 0")
    if len(split.periods) == 1:
        return first
    time = as_time(log, table["timestamp"])
    later = list(enumerate(split.periods))[:0:-1]
    cases = [(time >= ibis.literal(one.since), f"split {place}") for place, one in later]
    return ibis.cases(*cases, else_=first)


def check_arms(log: Log, split: Split, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a log with arms that the split does not name."""
    names = split.names
    counts: dict[str, int] = {}
    for row in rows:
        if row["arm"] and row["arm"] not in names:
            counts[row["arm"]] = counts.get(row["arm"], 0) + int(row["n"])
    if not names or not counts:
        return
    most = max(counts, key=lambda name: counts[name])
    alike = [name for name in names if name.strip().lower() == most.strip().lower()]
    near = f"; did you mean {alike[0]!r}?" if alike else did_you_mean(most, names)
    each = [f"{name!r} ({counted(count, 'row')})" for name, count in sorted(counts.items())]
    raise InvalidInputError(
        f"{log.name} has {'the arm' if len(each) == 1 else 'the arms'} {strung(each, 8)}, which "
        "the split does not name. Give every arm of the log its share, or leave rows out with a "
        f"query; the split names {strung(list(map(repr, names)), 8)}{near}",
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


# Plain randomisation.


def strata(pieces: Sequence[Piece], arms: ArmSet) -> list[Piece]:
    """The pieces that have rewards, as complete randomisation within stretches of time.

    Given how many rows each arm got, every choice of these rows was equally likely, whatever
    happens over time: the mean of an arm's rewards in a stretch is unbiased for all its rows.
    Neighbouring pieces of one split are joined until each arm has 200 rewards, which costs less
    than a hundredth of the precision that the plain means of everything would have if nothing
    drifts. The pieces stay as they were where an arm has fewer than two rewards under a split, and
    for arms with features in common.
    """
    used = [piece for piece in pieces if piece.m.sum()]
    found: list[Piece] = []
    for _, run in groupby(used, key=lambda piece: tuple(piece.weights)):
        groups: list[list[Piece]] = []
        for piece in run:
            if groups and _fewest(groups[-1]) < LEAST:
                groups[-1].append(piece)
            else:
                groups.append([piece])
        if len(groups) > 1 and _fewest(groups[-1]) < LEAST:
            last = groups.pop()
            groups[-1] += last
        found += [_joined(group) for group in groups]
    plain = is_one_hot(arms.coordinates) and all(piece.m.min() > 1 for piece in found)
    return found if plain else used


def _fewest(pieces: Sequence[Piece]) -> int:
    return int(np.sum([piece.m for piece in pieces], axis=0).min())


def _joined(pieces: Sequence[Piece]) -> Piece:
    def total(name: str) -> Any:
        return np.sum([getattr(piece, name) for piece in pieces], axis=0)

    rows = tuple(row for piece in pieces for row in piece.rows)
    sums = {name: total(name) for name in ("n", "m", "s", "ss")}
    level = sum(piece.level for piece in pieces)
    return replace(pieces[0], **sums, rows=rows, level=level, listed=True)
