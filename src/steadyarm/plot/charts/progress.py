"""Charts of a test as it went on: allocation, estimates, and variants that may be the best."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steadyarm.live.scorecard import Course, Shares
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.common import (
    MOST,
    colours,
    listed,
    nearest,
    others,
    shown,
    split,
    thinned,
    wanted,
)
from steadyarm.wording import amount, counted, labels_of, percent
from steadyarm.wording import listed as in_words

# Which share of the visits each variant got as the test went on.


COLUMNS = 120
MARKS = 8
LEAST, MOMENT = timedelta(seconds=1), timedelta(minutes=1)  # of the clock; for a single visit
SLIVER = 0.01  # of the picture's width: a last piece that took no time
TURN = "policy changed its mind"

Floats = NDArray[np.float64]


def allocation(shares: Shares, picked: Sequence[int] | None = None) -> Chart:
    """Shares over time; `picked` get colours, all others are summed up."""
    groups = _groups(shares.rounds)
    given = np.add.reduceat(_given(shares), groups, axis=0)
    part = given / np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
    x, axis, starts = _clock(shares, groups)
    by_share = np.lexsort((-given.sum(axis=0), -shares.planned[-1].round(4)))
    room = MOST if shares.variants <= MOST else MOST - 1  # never a single other
    own = [int(k) for k in by_share if k < shares.single][:room]
    tint = colours(wanted(picked, own))
    left = [k for k in range(len(shares.names)) if k not in tint]
    labels = labels_of(shares.names)
    stretched = part[[*range(len(part)), -1]]  # the last piece ends where the picture does
    areas = [
        Series(labels[k], x, stretched[:, k], kind="area", color=tint[k]) for k in sorted(tint)
    ]
    if left:
        rest = stretched[:, left].sum(axis=1)
        count = shares.variants - len(tint)
        areas.append(Series(counted(count, "other"), x, rest, kind="area", color=None))
    marks = _marks(shares, starts)
    panel = Panel(axis, Axis("share of visits", percent=True), tuple(areas), marks=marks)
    turns = [starts[int(j) + 1] for j in np.flatnonzero(shares.turns[1:])]
    return Chart(
        "allocation",
        "Which share of the visits each variant got",
        f"{counted(int(shares.given.sum()), 'visit')} so far. "
        f"{_largest(shares, own[0], labels[own[0]])} The policy changed its mind "
        f"{counted(len(turns), 'time')}{_marked(turns, marks, MARKS)}.",
        (panel,),
        _table(shares),
    )


def _groups(rounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each column of the picture begins: short pieces are drawn together."""
    if len(rounds) <= COLUMNS:
        return np.arange(len(rounds))
    before = np.cumsum(rounds) - rounds
    column = (before * COLUMNS) // max(int(rounds.sum()), 1)
    return np.flatnonzero(np.diff(column, prepend=-1))


def _given(shares: Shares) -> Floats:
    """How often each was assigned; the planned shares where nothing was assigned yet."""
    empty = shares.given.sum(axis=1, keepdims=True) == 0
    return np.where(empty, shares.planned * 1e-12, shares.given)


def _clock(
    shares: Shares, groups: NDArray[np.int64]
) -> tuple[tuple[Any, ...], Axis, tuple[Any, ...]]:
    """Bounds of the columns, their axis, and where each piece begins."""
    if shares.starts is not None and shares.ends is not None:
        begin, end = shares.starts, shares.ends[-1]
        return (
            (*(begin[j] for j in groups), _end(begin[0], begin[groups[-1]], end)),
            Axis("time (UTC)", "time"),
            begin,
        )
    before = np.cumsum(shares.rounds) - shares.rounds
    places = tuple(float(count) for count in before)
    end_at = max(float(shares.rounds.sum()), places[-1] + 1)
    return (*(places[j] for j in groups), end_at), Axis("visits"), places


def _end(first: datetime, last: datetime, end: datetime) -> datetime:
    """Where the data ends, or as much later as it takes to see the last piece."""
    if end <= first:
        return first + MOMENT
    return max(end, last + SLIVER * (end - first), first + LEAST)


def _marks(shares: Shares, starts: tuple[Any, ...]) -> tuple[Mark, ...]:
    """Turns, the latest first chosen, those close together as one; none at the very beginning."""
    rounds = np.cumsum(shares.rounds)
    turns = [int(j) for j in np.flatnonzero(shares.turns) if j and rounds[j - 1]]
    return tuple(Mark(starts[j], TURN) for j in _spaced(turns, starts, MARKS, apart=0.04))


def _spaced(turns: Sequence[int], x: Sequence[Any], most: int, apart: float) -> list[int]:
    """The latest of the turns, at most so many; of those close together the last one.

    apart : share of the picture's width from which on two turns have a mark each
    """
    span = x[-1] - x[0]
    kept: list[int] = []
    for j in reversed(turns):
        if len(kept) < most and (not kept or (x[kept[-1]] - x[j]) > apart * span):
            kept.append(j)
    return kept[::-1]


def _largest(shares: Shares, top: int, label: str) -> str:
    """Who has the largest share; no name where several have."""
    planned, K = shares.planned[:, : shares.single].round(4), shares.variants
    first, last = (percent(share) for share in shares.planned[[0, -1], top])
    tied = int(np.count_nonzero(planned[-1] == planned[-1].max()))
    if shares.rest and tied == shares.single:
        return f"Many variants now have the largest share, {last} each."
    if tied == 1:
        return f"{shown(label, 60)} now has the largest share, {last}, after {first} at first."
    if tied < K:
        return f"{tied:,} variants now have the largest share, {last} each."
    have = "now have the same share" if np.ptp(planned) else "have the same share all the time"
    return f"All variants {have}, {last} each."


def _marked(turns: Sequence[Any], marks: tuple[Mark, ...], most: int) -> str:
    """What to say where fewer marks are drawn than there were turns, at these places."""
    drawn = len(marks)
    if drawn in (0, len(turns)):
        return ""
    if list(turns[-drawn:]) == [mark.x for mark in marks]:
        return f"; the last {drawn} are marked" if drawn > 1 else "; the last is marked"
    latest = "only the latest are marked, and " if drawn == most else ""
    return f"; {latest}changes close together share a mark"


def _table(shares: Shares) -> Table:
    J, totals = len(shares.rounds), shares.given.sum(axis=1)
    with np.errstate(invalid="ignore"):
        part = shares.given / totals[:, None]  # nan where nothing was assigned
    return Table.grid(
        {
            "start": shares.starts or (None,) * J,
            "end": shares.ends or (None,) * J,
            "visits": totals,
        },
        {"variant": shares.names},
        {
            "given": shares.given,
            "share": part,
            "planned share": shares.planned,
            "policy changed its mind": shares.turns[:, None],
        },
    )


# Estimates of all variants as the test went on.


BANDS = 2
EARLY = 0.25  # share of the visits until which estimates and bands may leave the picture
LEADERS = 3  # changes of the leader that are marked
POINTS = 300


def estimates(course: Course, picked: Sequence[int] | None = None, rates: bool = False) -> Chart:
    """How the estimate of each variant settled.

    picked : variants that are drawn in colour
    rates : whether rewards are yes or no, so that their means are shown in per cent
    """
    K, leader = len(course.names), int(course.leaders[-1])
    chosen = wanted(picked, likely(course))
    tint, labels = colours(chosen), labels_of(course.names)
    x, clock = clock_axis(course)
    rows, early = thinned(len(x), POINTS), course.rounds < EARLY * course.rounds[-1]
    thin = tuple(x[j] for j in rows)
    banded = {leader, *chosen[:BANDS]} if len(chosen) > 1 else {leader}
    banded = {k for k in banded if np.isfinite(course.high[:, k]).sum() > 1}
    left = [k for k in range(K) if k not in tint]
    lines = [
        Series(
            labels[k],
            thin,
            course.estimates[rows, k],
            course.low[rows, k] if k in banded else None,
            course.high[rows, k] if k in banded else None,
            color=tint[k],
            weak=early[rows],
        )
        for k in sorted(tint, key=lambda k: (k != leader, k))
    ]
    quiet = others(x, course.estimates, left, counted(len(left), "other"), early)
    owners = [shown(labels[k], 40) for k in sorted(banded & set(tint), key=chosen.index)]
    turns = [int(j) + 1 for j in np.flatnonzero(np.diff(course.leaders))]
    # Early leads change by chance all the time; the lines show who led before the first mark.
    marks = tuple(
        Mark(x[j], f"{labels[course.leaders[j]]} leads")
        for j in _spaced([j for j in turns if not early[j]], x, LEADERS, apart=0.1)
    )
    reward = Axis("estimated reward", percent=rates)
    marked = _marked([x[j] for j in turns], marks, LEADERS)
    return Chart(
        "estimates",
        "Estimated reward of each variant, from the whole test so far",
        _estimates_summary(course, labels, marked, rates),
        (Panel(clock, reward, (*quiet, *lines), marks=marks),),
        _estimates_table(course),
        _note(course, owners, bool(early.any())),
        _bands_mean(course.level) if owners else "",
    )


def _note(course: Course, owners: Sequence[str], early: bool) -> str:
    """Whose the bands are: colours so pale are hard to tell apart."""
    if not owners:
        return ""
    some = ""
    if course.size:
        some = f"The best {len(course.names):,} of {course.size:,} variants are drawn. "
    wide = " Early bands are wider than the picture." if early else ""
    sure = percent(course.level)
    return f"{some}Bands: where the true values of {in_words(owners)} may lie ({sure}).{wide}"


def _bands_mean(level: float) -> str:
    return (
        f"A band shows the {percent(level)} interval of a variant. In {percent(level)} of all "
        "tests the intervals of all variants contain the true values at all times, so you may "
        "look as often as you like. Two bands may overlap even where one variant is clearly "
        "better: the difference of two variants is known more exactly than each of them."
    )


def likely(course: Course) -> list[int]:
    """The leader and those nearest to it, variants that can still win first."""
    leader, last = int(course.leaders[-1]), course.estimates[-1]
    return nearest(last - last[leader], leader, course.plausible[-1])


def clock_axis(course: Course) -> tuple[tuple[Any, ...], Axis]:
    """The times of the course, by the clock or by the visits that the verdict rests on."""
    if course.times is not None:
        return course.times, Axis("time (UTC)", "time")
    return tuple(float(count) for count in course.rounds), Axis("visits in the verdict")


def _estimates_summary(course: Course, labels: Sequence[str], marked: str, rates: bool) -> str:
    k = int(course.leaders[-1])
    low, high = course.low[-1, k], course.high[-1, k]
    known = np.isfinite(high - low)
    reach = f", interval {amount(low, rates)} to {amount(high, rates)}" if known else ""
    alive = int(course.possible[-1])
    changes = int(np.count_nonzero(np.diff(course.leaders)))
    times = {0: "never changed", 1: "changed once"}.get(changes, f"changed {changes:,} times")
    return (
        f"After {counted(int(course.rounds[-1]), 'visit')} {shown(labels[k], 60)} leads "
        f"with an estimate of {amount(course.estimates[-1, k], rates)}{reach}; not ruled out: "
        f"{alive:,} of {counted(course.variants, 'variant')}. The leader "
        f"{times}{marked}."
    )


def _estimates_table(course: Course) -> Table:
    leads = np.arange(len(course.names)) == course.leaders[:, None]
    return Table.grid(
        {"time": course.times or (None,) * len(course.rounds), "visits": course.rounds},
        {"variant": course.names},
        {
            "estimate": course.estimates,
            "low": course.low,
            "high": course.high,
            "not ruled out": course.plausible,
            "leads": leads,
        },
    )


# How many variants may be the best, and when the others were ruled out.


ROWS = 12


def plausible(course: Course) -> Chart:
    """The shrinking set of variants that are not ruled out."""
    x, clock = clock_axis(course)
    counts = course.possible.astype(float)
    changes = (1 + np.flatnonzero(np.diff(counts))).tolist()
    rows = sorted({*thinned(len(counts), POINTS), *changes})
    left = Series("not ruled out", tuple(x[j] for j in rows), counts[rows], kind="steps", color=0)
    first = Panel(clock, Axis("variants"), (left,), "Variants that are not ruled out")
    return Chart(
        "plausible",
        "How many variants are not ruled out",
        _plausible_summary(course),
        (first, _race(course)) if not course.plausible[-1].all() else (first,),
        _plausible_table(course),
        f"Ruled out: another variant is clearly better.{_uncounted(course)}",
        f"A variant is ruled out when the {percent(course.level)} interval of its difference from "
        f"another one lies on the wrong side of zero. In {percent(course.level)} of all tests the "
        "best variant is never ruled out, however often you look.",
    )


def _last_hope(course: Course) -> NDArray[np.int64]:
    """(K,) the time at which each was ruled out for good; J if it can still win, 0 if never."""
    J = len(course.rounds)
    seen = course.plausible[::-1].argmax(axis=0)
    return np.where(course.plausible.any(axis=0), J - seen, 0)


def _race(course: Course) -> Panel:
    stay, J, K = _last_hope(course), len(course.rounds), len(course.names)
    leader, last = int(course.leaders[-1]), course.estimates[-1]
    by_distance = nearest(last - last[leader], leader, course.plausible[-1], K)
    order = sorted(by_distance, key=lambda k: -int(stay[k]))
    hopeful = int((stay == J).sum())
    kept = max(ROWS - (K - hopeful), ROWS // 2)  # those ruled out are to be seen too
    rows = [*order[: min(kept, hopeful)], *order[hopeful:]][:ROWS]
    labels = labels_of(course.names)
    names = tuple(labels[k] for k in rows)
    length = course.rounds[np.minimum(stay[rows], J - 1)].astype(float)
    alive = stay[rows] == J
    title = "How long each could be the best" + f" ({len(rows)} of {K:,})" * (len(rows) < K)
    series = split(
        Series("", names, length, kind="bars"),
        {"not ruled out": (alive, 0), "ruled out": (~alive, None)},
    )
    return Panel(Axis("", "label"), Axis("visits in the verdict"), series, title, sideways=True)


def _plausible_summary(course: Course) -> str:
    labels = labels_of(course.names)
    alive = [name for name, may in zip(labels, course.plausible[-1], strict=True) if may]
    count, rounds = int(course.possible[-1]), int(course.rounds[-1])
    among = "among them " * (count > len(alive))
    return (
        f"After {counted(rounds, 'visit')} not ruled out: {count:,} of "
        f"{counted(course.variants, 'variant')} ({among}{listed(alive, 5)})."
    )


def _uncounted(course: Course) -> str:
    if not course.size:
        return ""
    if course.others is None:
        return f" Only the best {len(course.names):,} of {course.size:,} variants are counted here."
    return f" Bars are those of the best {len(course.names):,}."


def _plausible_table(course: Course) -> Table:
    stay = _last_hope(course).tolist()
    times, rounds = course.times or (None,) * len(course.rounds), course.rounds.tolist()
    return Table.of(
        {
            "variant": course.names,
            "not ruled out": [j == len(rounds) for j in stay],
            "ruled out at": [(*times, None)[j] for j in stay],
            "visits until then": [(*rounds, None)[j] for j in stay],
            "looks until": [j + 1 if j < len(rounds) else None for j in stay],
        }
    )
