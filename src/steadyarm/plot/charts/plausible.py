"""How many variants can still win, and when the others were ruled out."""

from __future__ import annotations

from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from steadyarm.factors import labels_of
from steadyarm.looks.look import Course
from steadyarm.plot.chart import Axis, Chart, Panel, Series, Table
from steadyarm.plot.charts.estimates import clock_axis
from steadyarm.plot.charts.names import listed
from steadyarm.plot.charts.picks import nearest, thinned
from steadyarm.wording import counted, percent

__all__ = ["plausible"]

ROWS = 12
POINTS = 300


def plausible(course: Course) -> Chart:
    """The shrinking set of variants that are not ruled out."""
    x, clock = clock_axis(course)
    counts = course.possible.astype(float)
    rows = _with_changes(counts)
    number_left = Series(
        "not ruled out", tuple(x[j] for j in rows), counts[rows], kind="steps", color=0
    )
    first = Panel(clock, Axis("variants"), (number_left,), "Variants that are not ruled out")
    return Chart(
        "plausible",
        "How many variants are not ruled out",
        _summary(course),
        (first, _race(course)) if not course.plausible[-1].all() else (first,),
        _table(course),
        f"Ruled out: another variant was better at level {percent(course.level)}, all looks and "
        f"all variants taken together.{_uncounted(course)}",
    )


def _with_changes(counts: NDArray[np.float64]) -> list[int]:
    changes = [0, *(1 + np.flatnonzero(np.diff(counts)))]
    return sorted({*thinned(len(counts), POINTS), *(int(j) for j in changes)})


def _last_hope(course: Course) -> NDArray[np.int64]:
    """(K,) the look after which each was ruled out for good; J if it can still win, 0 if never."""
    J = len(course.rounds)
    seen = course.plausible[::-1].argmax(axis=0)
    return np.where(course.plausible.any(axis=0), J - seen, 0)


def _ruled_out(course: Course) -> list[int | None]:
    """Look at which each was ruled out for good; None if it are not ruled out."""
    J = len(course.rounds)
    return [None if stop == J else int(stop) for stop in _last_hope(course)]


def _race(course: Course) -> Panel:
    out = _ruled_out(course)
    leader, last = int(course.leaders[-1]), course.estimates[-1]
    by_distance = nearest(last - last[leader], leader, course.plausible[-1], len(out))
    stay = _last_hope(course)
    order = sorted(by_distance, key=lambda k: -int(stay[k]))
    hopeful = sum(k is None for k in out)
    kept = max(ROWS - (len(out) - hopeful), ROWS // 2)  # those ruled out are to be seen too
    rows = [*order[: min(kept, hopeful)], *order[hopeful:]][:ROWS]
    labels = labels_of(course.names)
    names = tuple(labels[k] for k in rows)
    length = np.array([float(course.rounds[-1 if out[k] is None else out[k]]) for k in rows])
    alive = np.array([out[k] is None for k in rows])
    more = len(out) - len(rows)
    title = "How long each was in" + (f" ({len(rows)} of {len(out):,})" * bool(more))
    return Panel(
        Axis("", "label"),
        Axis("visits judged"),
        (
            Series("not ruled out", names, np.where(alive, length, np.nan), kind="bars", color=0),
            Series("ruled out", names, np.where(alive, np.nan, length), kind="bars", color=None),
        ),
        title,
        sideways=True,
    )


def _summary(course: Course) -> str:
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
    return f" How long each was in is told of the best {len(course.names):,}."


def _table(course: Course) -> Table:
    header = ("variant", "not ruled out", "ruled out at", "visits until then", "looks until")
    rows: list[tuple[str, bool, datetime | None, int | None, int | None]] = []
    for k, j in enumerate(_ruled_out(course)):
        name, times = course.names[k], course.times
        if j is None:
            rows.append((name, True, None, None, None))
        else:
            when = None if times is None else times[j]
            rows.append((name, False, when, int(course.rounds[j]), j + 1))
    return Table(header, tuple(rows))
