"""What charts share: names cut short, colours, thinning, and periods."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from steadyarm.inference import DriftReport
from steadyarm.plot.chart import Axis, Series
from steadyarm.wording import listed as in_words

# Names cut short so that different ones stay different.


AHEAD = 4  # letters kept before the first one that differs
WIDER = 8


def apart(names: Sequence[str], most: int = 28) -> tuple[str, ...]:
    """Each name on one line, long ones cut so that no two different names look the same.

    Where the usual cut would hide the difference, the common beginning is left out. If even that
    does not help, more letters are shown.

    Examples
    --------
    >>> apart(["a headline", "a very long headline with a dog"], most=20)
    ('a headline', 'a very long…h a dog')
    >>> apart(["on page 1 a red sign and a cat", "on page 1 a tan sign and a cat"], most=16)
    ('…1 a red…a cat', '…1 a tan…a cat')
    """
    lines = {name: one_line(name) for name in names}
    longest = max(map(len, lines.values()), default=0)
    width = most
    found = _cut(sorted(set(lines.values())), width)
    while len(set(found.values())) < len(found) and width < longest:
        width += WIDER
        found = _cut(list(found), width)
    return _numbered(names, {name: found[line] for name, line in lines.items()})


def _cut(lines: Sequence[str], most: int) -> dict[str, str]:
    """The usual cut; of names that it makes equal, what differs."""
    return {
        line: text
        for text, alike in _groups(lines, [shown(line, most) for line in lines]).items()
        for line, text in ({alike[0]: text} if len(alike) == 1 else _differing(alike, most)).items()
    }


def _differing(lines: Sequence[str], most: int) -> dict[str, str]:
    start = max(_common(min(lines), max(lines)) - AHEAD, 1)
    texts = [shown(f"…{line[start:].lstrip()}", most) for line in lines]
    found: dict[str, str] = {}
    for text, alike in _groups(lines, texts).items():
        fewer = 1 < len(alike) < len(lines)
        found |= _differing(alike, most) if fewer else dict.fromkeys(alike, text)
    return found


def _common(first: str, last: str) -> int:
    """Letters at the beginning of both, and so of all that are between them in the alphabet."""
    pairs = enumerate(zip(first, last, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)))


def _groups(lines: Sequence[str], texts: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line, text in zip(lines, texts, strict=True):
        found[text].append(line)
    return found


def _numbered(names: Sequence[str], texts: dict[str, str]) -> tuple[str, ...]:
    """Names that differ only in invisible characters get numbers."""
    same, taken = Counter(texts.values()), set(texts.values())
    found = {}
    for name, text in texts.items():
        free = (f"{text} ({n})" for n in count(1))
        found[name] = text if same[text] == 1 else next(one for one in free if one not in taken)
        taken.add(found[name])
    return tuple(found[name] for name in names)


def listed(names: Sequence[str], most: int = 3) -> str:
    """Names in a sentence, each cut short: A, B and 4 more.

    Examples
    --------
    >>> listed(["A", "B", "C"]), listed(["A", "B", "C"], most=2)
    ('A, B and C', 'A, B and 1 more')
    """
    return in_words(apart(names, 40), most)


# Texts and numbers as charts show them.


TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def one_line(name: str) -> str:
    """A name without line breaks and without characters that change the direction of text."""
    kept = "".join(
        " " if unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") else sign
        for sign in name
        if sign not in TURNING
    )
    return " ".join(kept.split())


def shown(name: str, most: int = 28) -> str:
    """A name on one line, its middle left out if it is long.

    Examples
    --------
    >>> shown("short headline"), shown("a very long headline with a dog", most=20)
    ('short headline', 'a very long…h a dog')
    """
    line = one_line(name)
    if len(line) <= most:
        return line
    tail = (most - 1) * 2 // 5
    return f"{line[: most - 1 - tail].rstrip()}…{line[len(line) - tail :].lstrip()}"


def days_of(labels: Sequence[str]) -> tuple[datetime, ...] | None:
    """The labels as days, if all of them are such as 2026-11-15."""
    try:
        return tuple(datetime.combine(date.fromisoformat(label), time()) for label in labels)
    except ValueError:
        return None


def difference_axis(title: str, rates: bool) -> Axis:
    """An axis of differences between mean rewards, which are percentage points between rates."""
    words = [title, "percentage points"] if rates else [title]
    return Axis(", ".join(filter(None, words)), percent=rates)


# Which variants are picked out in colour, and in which.


MOST = 8  # as many colours as there are


def nearest(distances: ArrayLike, first: int, may_win: ArrayLike, most: int = MOST) -> list[int]:
    """The first, those that can still win, then the others; each by distance from the first."""
    away = np.nan_to_num(np.abs(np.asarray(distances, float)), nan=np.inf)
    order = np.lexsort((away, ~np.asarray(may_win, bool)))
    return [first, *(int(k) for k in order if k != first)][:most]


def wanted(picked: Sequence[int] | None, own: Sequence[int]) -> list[int]:
    """Variants that the caller picked, else the chart's own choice; at most as many as colours."""
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
        found[k] = next(color % MOST for color in range(k, k + MOST) if color % MOST in free)
        free.discard(found[k])
    return found


def others(
    x: tuple[object, ...],
    values: NDArray[np.float64],
    left: Sequence[int],
    name: str,
    weak: NDArray[np.bool_],
) -> tuple[Series, ...]:
    """All variants without a colour as one grey series, with gaps between them; or none."""
    if not left:
        return ()
    rows = thinned(len(x), 80)
    ys = np.concatenate([np.append(values[rows, k], np.nan) for k in left])
    xs = tuple(x[j] for j in (*rows, rows[-1])) * len(left)
    return (Series(name, xs, ys, color=None, weak=np.tile(weak[[*rows, rows[-1]]], len(left))),)


def split(
    series: Series, parts: Mapping[str, tuple[NDArray[np.bool_], int | None]]
) -> tuple[Series, ...]:
    """The series as one for each part that is not empty: its name, its points and its colour."""
    return tuple(
        replace(series.where(here), name=name, color=color)
        for name, (here, color) in parts.items()
        if here.any()
    )


def thinned(count: int, most: int) -> list[int]:
    """At most so many of the indices, the first and the last among them."""
    return [int(j) for j in np.unique(np.linspace(0, count - 1, min(count, most)).round())]


# What charts by day or period share.


ENOUGH = 0.25  # share of the usual visits of a period from which on it sets the scale


def period_axis(report: DriftReport) -> tuple[tuple[Any, ...], Axis]:
    """The periods, as days if they are days."""
    days = days_of(report.periods)
    if days is not None:
        return days, Axis("day (UTC)", "time")
    return report.periods, Axis("share of the test", "label")


def rivals(report: DriftReport, most: int) -> list[int]:
    """The best variant over the whole test and those nearest to it."""
    weights = report.rounds / max(int(report.rounds.sum()), 1)
    behind = np.nan_to_num(report.gaps).T @ weights
    best = report.names.index(report.best)
    return nearest(behind, best, np.ones(len(report.names), bool), most)


def few_visits(report: DriftReport) -> NDArray[np.bool_]:
    """(P,) periods with far fewer visits than usual, such as a day that has just begun."""
    seen = report.rounds[report.rounds > 0]
    return np.asarray(report.rounds < ENOUGH * (np.median(seen) if seen.size else 0))


def hollow_note(few: NDArray[np.bool_], axis: Axis) -> str:
    """The small print about such periods, or nothing."""
    unit = "Days" if axis.kind == "time" else "Parts"
    if not few.any():
        return ""
    return f" {unit} with few visits are hollow, and may lie beyond the picture."
