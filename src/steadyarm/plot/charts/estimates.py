"""Estimates of all variants as the test went on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from steadyarm.factors import labels_of
from steadyarm.looks.look import Course
from steadyarm.plot.chart import Axis, Chart, Mark, Panel, Series, Table
from steadyarm.plot.charts.picks import colours, nearest, others, thinned, wanted
from steadyarm.plot.charts.words import known, shown
from steadyarm.wording import counted, listed, number, percent

__all__ = ["clock_axis", "estimates", "likely"]

BANDS = 2
EARLY = 0.25  # share of the visits until which estimates and bands may leave the picture
MARKS = 6
POINTS = 300


def estimates(course: Course, picked: Sequence[int] | None = None) -> Chart:
    """How the estimate of each variant settled; `picked` are drawn in colour."""
    K, leader = len(course.names), int(course.leaders[-1])
    chosen = wanted(picked, likely(course))
    tint, labels = colours(chosen), labels_of(course.names)
    x, clock = clock_axis(course)
    rows, early = thinned(len(x), POINTS), course.rounds < EARLY * course.rounds[-1]
    thin = tuple(x[j] for j in rows)
    banded = {leader, *chosen[:BANDS]} if len(chosen) > 1 else {leader}
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
    marks = _leader_marks(course, x, labels)
    panel = Panel(clock, Axis("estimated reward"), (*quiet, *lines), marks=marks)
    return Chart(
        "estimates",
        "Estimated reward of each variant, from the whole test so far",
        _summary(course, labels),
        (panel,),
        _table(course),
        _note(course, owners, bool(early.any())),
    )


def _note(course: Course, owners: Sequence[str], early: bool) -> str:
    """Whose the bands are: colours so pale are hard to tell apart."""
    if not owners:
        return ""
    some = ""
    if course.size:
        some = f"The best {len(course.names):,} of {course.size:,} variants are drawn. "
    return (
        f"{some}Bands: {percent(course.level)} intervals of {listed(owners)} that hold for all "
        f"variants and at all times at once.{' Early ones may leave the picture.' if early else ''}"
    )


def likely(course: Course) -> list[int]:
    """The leader and those nearest to it, variants that can still win first."""
    leader, last = int(course.leaders[-1]), course.estimates[-1]
    return nearest(last - last[leader], leader, course.plausible[-1])


def clock_axis(course: Course) -> tuple[tuple[Any, ...], Axis]:
    """When each look was, by the clock or by what was judged until then."""
    if course.times is not None:
        return course.times, Axis("time (UTC)", "time")
    return tuple(float(count) for count in course.rounds), Axis("visits judged")


def _leader_marks(course: Course, x: tuple[Any, ...], labels: Sequence[str]) -> tuple[Mark, ...]:
    turns = 1 + np.flatnonzero(np.diff(course.leaders))
    # Early leads change by luck all the time; who led before the first mark is seen in the line.
    return tuple(Mark(x[j], f"{labels[course.leaders[j]]} leads") for j in turns[-MARKS:])


def _summary(course: Course, labels: Sequence[str]) -> str:
    k = int(course.leaders[-1])
    low, high = course.low[-1, k], course.high[-1, k]
    reach = f", interval {number(low)} to {number(high)}" if np.isfinite(high - low) else ""
    alive = int(course.possible[-1])
    changes = int(np.count_nonzero(np.diff(course.leaders)))
    return (
        f"After {counted(int(course.rounds[-1]), 'visit')} {shown(labels[k], 60)} leads "
        f"with an estimate of {number(course.estimates[-1, k])}{reach}; not ruled out: "
        f"{alive:,} of {counted(course.variants, 'variant')}. The leader changed "
        f"{counted(changes, 'time')}{f'; the last {MARKS} are marked' * (changes > MARKS)}."
    )


def _table(course: Course) -> Table:
    header = ("time", "visits", "variant", "estimate", "low", "high", "not ruled out", "leads")
    times = course.times or (None,) * len(course.rounds)
    rows = tuple(
        (
            time,
            int(course.rounds[j]),
            name,
            known(course.estimates[j, k]),
            known(course.low[j, k]),
            known(course.high[j, k]),
            bool(course.plausible[j, k]),
            bool(k == course.leaders[j]),
        )
        for j, time in enumerate(times)
        for k, name in enumerate(course.names)
    )
    return Table(header, rows)
